import { describe, expect, it } from "vitest";
import { mountFromRoot, mountsFromPaths, mountsFromZones, projectSandbox } from "../../src/sandbox/declare.ts";
import { mount, project, rooted, shown, strict, zones } from "./sandboxes.ts";

describe("the three forms of a declaration", () => {
  it("put zones and paths at their names, read-only where nothing is said", () => {
    expect(mountsFromZones([{ name: "data", host: "/host/d" }])).toEqual([
      { name: "data", path: "/data", host: "/host/d", mode: "ro" },
    ]);
    expect(mountsFromPaths([{ name: "docs", host: "/host/x", mode: "rw", maxFileBytes: 9 }])).toEqual([
      { name: "docs", path: "/docs", host: "/host/x", mode: "rw", maxFileBytes: 9 },
    ]);
  });

  it("put the root at /, writable unless it is readonly", () => {
    expect(shown(rooted())).toEqual(["/ rw"]);
    expect(shown(rooted(true))).toEqual(["/ ro"]);
    expect([rooted().rooted, zones({ data: "ro" }).rooted]).toEqual([true, false]);
  });

  it("write suffixes one way: lower case, with their dot, sorted, none twice", () => {
    expect(mountFromRoot({ host: "/host", suffixes: [".PDF", "md", ".pdf"] })[0]?.suffixes).toEqual([".md", ".pdf"]);
  });
});

describe("projectSandbox", () => {
  it("has no network where the project declares none, and the policy's largest limits", () => {
    const derivation = projectSandbox({ mounts: [], rooted: false, limits: { pids: 7 } }, strict);
    expect(derivation).toMatchObject({
      ok: true,
      sandbox: { chain: ["project"], network: false, limits: { ...strict.maxLimits, pids: 7 }, narrowings: [] },
    });
  });

  it("refuses, all at once, what exceeds the policy", () => {
    const declaration = { mounts: [], rooted: false, network: true, limits: { memoryBytes: 2 ** 40, cpus: 99 } };
    expect(projectSandbox(declaration, strict)).toEqual({
      ok: false,
      violations: [
        { code: "NETWORK_NOT_AVAILABLE", asked: true, has: strict.network, by: "policy strict" },
        { code: "LIMIT_TOO_LARGE", limit: "memoryBytes", asked: 2 ** 40, has: 2 ** 29, by: "policy strict" },
        { code: "LIMIT_TOO_LARGE", limit: "cpus", asked: 99, has: 4, by: "policy strict" },
      ],
    });
  });

  it("can turn everything read-only", () => {
    expect(shown(project([mount("/a", "rw")], { readonly: true }))).toEqual(["/a ro"]);
  });

  it("sorts its mounts and keeps none that changes nothing", () => {
    const mounts = [mount("/b", "ro"), mount("/a/x", "rw", { name: "a" }), mount("/a", "rw"), mount("/a-b", "ro")];
    expect(shown(project(mounts))).toEqual(["/a rw", "/a-b ro", "/b ro"]);
  });

  it("survives serialisation", () => {
    const sandbox = zones({ data: "rw" });
    expect(JSON.parse(JSON.stringify(sandbox))).toEqual(sandbox);
  });
});
