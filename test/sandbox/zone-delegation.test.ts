import { describe, expect, it } from "vitest";
import { checkWrite } from "../../src/sandbox/access.ts";
import { describeViolations } from "../../src/sandbox/wording.ts";
import { at, child, refusals, shown, zones } from "./sandboxes.ts";

describe("zones, delegated from caller to worker", () => {
  it("gives a child only what it declared", () => {
    const parent = zones({ data: "rw", workspace: "rw", cache: "rw" });
    expect(shown(child(parent, { zones: [{ name: "data", mode: "rw" }] }))).toEqual(["/data rw"]);
  });

  it("refuses rw where the parent has ro, and says what would do", () => {
    const violations = refusals(zones({ data: "ro" }), { zones: [{ name: "data", mode: "rw" }] });
    expect(violations).toEqual([{ code: "WRITE_NOT_AVAILABLE", asked: "/data", has: "ro", by: "project", valid: [] }]);
    expect(describeViolations(violations)).toMatch(/read-only: .* Ask to read it only/);
  });

  it("makes a child that declares nothing a pure function", () => {
    expect(child(zones({ data: "rw", workspace: "rw" }), {}).mounts).toEqual([]);
    expect(child(zones({ data: "rw" }), { zones: [] }).mounts).toEqual([]);
  });

  it("reads only, where the mode is not said", () => {
    expect(shown(child(zones({ data: "rw" }), { zones: [{ name: "data" }] }))).toEqual(["/data ro"]);
  });

  it("refuses a name that the parent lacks, and names who left it out", () => {
    const caller = child(zones({ data: "rw", cache: "rw" }), { zones: [{ name: "data" }] }, "caller");
    expect(refusals(caller, { zones: [{ name: "cache" }, { name: "other" }] })).toEqual([
      { code: "MOUNT_NOT_AVAILABLE", asked: "cache", by: "caller", valid: ["data"] },
      { code: "MOUNT_NOT_AVAILABLE", asked: "other", by: "project", valid: ["data"] },
    ]);
  });

  it("gives what is left of a name where the parent has only a part of it", () => {
    const caller = child(zones({ data: "rw" }), { allowRead: [at("/data/in")], allowWrite: [] }, "caller");
    expect(shown(child(caller, { zones: [{ name: "data" }] }))).toEqual(["/data/in ro"]);
  });

  it("refuses rw where any part of it is ro", () => {
    const needs = { allowRead: [at("/data")], allowWrite: [at("/data/out")] };
    const caller = child(zones({ data: "rw" }), needs, "caller");
    expect(refusals(caller, { zones: [{ name: "data", mode: "rw" }] })).toEqual([
      { code: "WRITE_NOT_AVAILABLE", asked: "/data", has: "ro", by: "caller", valid: ["/data/out"] },
    ]);
  });

  it("reads a rw declaration down where the worker says readonly", () => {
    const sandbox = child(zones({ data: "ro" }), { zones: [{ name: "data", mode: "rw" }], readonly: true });
    expect(shown(sandbox)).toEqual(["/data ro"]);
  });

  it("tells an LLM in plain words that a directory is read-only", () => {
    const sandbox = child(zones({ input: "ro", output: "rw" }), { inherit: true });
    const message = checkWrite(sandbox, at("/input/new.txt"))?.message;
    expect(message).toMatch(/read-only/);
    expect(message).toMatch(/Writable paths: \/output/);
  });
});
