import { describe, expect, it } from "vitest";
import { mountFromRoot, mountsFromPaths, mountsFromZones, projectSandbox } from "../../src/sandbox/declare.ts";
import { child, mount, project, refusals, rooted, shown, strict, zones } from "./sandboxes.ts";

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
    const sandbox = projectSandbox({ mounts: [], rooted: false, limits: { pids: 7 } }, strict);
    const limits = { ...strict.maxLimits, pids: 7 };
    expect(sandbox).toMatchObject({ chain: ["project"], network: false, limits, narrowings: [] });
  });

  it("has what its policy allows of it, and says what the policy took away", () => {
    const declaration = {
      mounts: [],
      rooted: false,
      network: true,
      limits: { memoryBytes: 2 ** 40, cpus: 99, pids: 7 },
    };
    const sandbox = projectSandbox(declaration, strict);
    expect(sandbox.network).toEqual(strict.network);
    expect(sandbox.limits).toEqual({ ...strict.maxLimits, pids: 7 });
    const by = "policy strict";
    expect(sandbox.narrowings).toEqual([
      { by, kind: "network", from: true, to: strict.network },
      { by, kind: "limit", limit: "memoryBytes", from: 2 ** 40, to: 2 ** 29 },
      { by, kind: "limit", limit: "cpus", from: 99, to: 4 },
    ]);
    expect(child(sandbox, {}).network).toBe(false);
    expect(refusals(sandbox, { network: { allow: [{ to: "a.org:443" }] }, limits: { cpus: 5 } })).toMatchObject([
      { code: "NETWORK_NOT_AVAILABLE", by },
      { code: "LIMIT_TOO_LARGE", limit: "cpus", has: 4, by },
    ]);
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
