import { describe, expect, it } from "vitest";
import { accessOf, governingMount, select } from "../../src/sandbox/access.ts";
import { type DirectoryGrant, expand } from "../../src/sandbox/expand.ts";
import type { Mount } from "../../src/sandbox/mount.ts";
import type { Sandbox } from "../../src/sandbox/sandbox.ts";
import { isReserved } from "../../src/sandbox/virtual-path.ts";
import { at, child, mount, project, rooted, shown, zones } from "./sandboxes.ts";

function granted(from: Sandbox, path: string, mode: DirectoryGrant["mode"], id = "g1"): DirectoryGrant {
  return { id, path: at(path), mode, by: "a person", source: select(from, at(path)) };
}

describe("a granted directory", () => {
  it("stands where its source has it, for reading alone", () => {
    const parent = zones({ inbox: "rw", out: "rw" });
    const worker = child(parent, { zones: [{ name: "out", mode: "rw" }] });
    const after = expand(worker, granted(parent, "/inbox", "read"));
    expect(shown(after)).toEqual(["/inbox ro", "/out rw"]);
    expect(shown(worker)).toEqual(["/out rw"]);
    expect(after).toMatchObject({ chain: worker.chain, limits: worker.limits, policy: worker.policy, network: false });
  });

  it("is told with who granted it, after all that was taken away", () => {
    const parent = zones({ inbox: "rw" });
    const after = expand(child(parent, {}), granted(parent, "/inbox", "read"));
    const told = after.narrowings.map(({ kind, by }) => `${kind} ${by}`);
    expect(told).toEqual(["mount child", "network child", "grant a person"]);
    expect(after.narrowings.at(-1)).toMatchObject({ path: "/inbox", from: "none", to: "ro" });
  });

  it("that can be written needs no question for a write, and one for a deletion", () => {
    const parent = zones({ inbox: "rw" });
    const after = expand(child(parent, {}), granted(parent, "/inbox/new", "write"));
    expect(after.mounts).toMatchObject([
      { path: "/inbox/new", host: "/host/inbox/new", mode: "rw", approval: { write: "pre_approved", delete: "ask" } },
    ]);
  });

  it("cannot be written where its source only reads", () => {
    const parent = zones({ inbox: "ro" });
    expect(shown(expand(child(parent, {}), granted(parent, "/inbox", "write")))).toEqual(["/inbox ro"]);
  });

  it("leaves a place alone in which the worker sees another directory", () => {
    const parent = zones({ inbox: "rw" });
    const own: Mount = { ...mount("/inbox", "ro"), host: "/elsewhere" };
    const worker = { ...child(parent, {}), mounts: [own] };
    expect(expand(worker, granted(parent, "/inbox", "write"))).toBe(worker);
  });

  it("keeps what the mounts below it hide", () => {
    const parent = project([mount("/data", "rw"), mount("/data/secret", "ro", { suffixes: [".md"] })]);
    const after = expand(child(parent, {}), granted(parent, "/data", "write"));
    expect(shown(after)).toEqual(["/data rw", "/data/secret ro"]);
    expect(governingMount(after, at("/data/secret/x"))).toMatchObject({ suffixes: [".md"] });
  });

  it("carries its mark to whom a sandbox is derived for later", () => {
    const parent = zones({ inbox: "rw" });
    const after = expand(child(parent, {}), granted(parent, "/inbox", "read", "g7"));
    expect(child(after, { allowRead: [at("/inbox/sub")] }).mounts).toMatchObject([
      { path: "/inbox/sub", granted: "g7" },
    ]);
  });
});

describe("an upgrade from reading to writing", () => {
  it("keeps the suffixes and the sizes of the mount that it upgrades", () => {
    const parent = zones({ inbox: "rw" });
    const worker = {
      ...child(parent, { zones: [{ name: "inbox" }] }),
      mounts: [mount("/inbox", "ro", { suffixes: [".md", ".txt"], maxFileBytes: 10 })],
    };
    const source = [mount("/inbox", "rw", { suffixes: [".md"], maxFileBytes: 20 })];
    const after = expand(worker, { ...granted(parent, "/inbox", "write"), source });
    expect(after.mounts).toMatchObject([{ mode: "rw", suffixes: [".md"], maxFileBytes: 10 }]);
  });

  it("is of the directory that was asked for, and not of the ones beside it", () => {
    const parent = zones({ inbox: "rw" });
    const worker = child(parent, { zones: [{ name: "inbox" }] });
    const after = expand(worker, granted(parent, "/inbox/a", "write"));
    expect(["/inbox/x", "/inbox/a/x", "/inbox/ab/x"].map((path) => accessOf(after, at(path)))).toEqual([
      "read",
      "write",
      "read",
    ]);
  });

  it("leaves what is blocked blocked", () => {
    const blocked = { write: "blocked", delete: "blocked" } as const;
    const parent = project([mount("/inbox", "rw", { approval: { write: "pre_approved", delete: "blocked" } })]);
    const worker = child(parent, { zones: [{ name: "inbox", approval: blocked }] });
    const after = expand(worker, granted(parent, "/inbox", "write"));
    expect(after.mounts).toMatchObject([{ mode: "rw", approval: blocked }]);
    const fresh = expand(child(parent, {}), granted(parent, "/inbox", "write"));
    expect(fresh.mounts).toMatchObject([{ approval: { write: "pre_approved", delete: "blocked" } }]);
  });
});

describe("what nothing can be mounted at", () => {
  it.each(["/", "/etc", "/proc/self", "/attachments/a", "/tmp", "/root", "/.corral"])("is %s", (path) => {
    const parent = zones({ inbox: "rw" });
    expect(isReserved(at(path), parent)).toBe(true);
    expect(() => expand(parent, granted(parent, path, "read"))).toThrow(RangeError);
  });

  it("is only `/` in a rooted namespace, which has a directory of its own in the cell", () => {
    const parent = rooted();
    expect([isReserved(at("/"), parent), isReserved(at("/etc"), parent)]).toEqual([true, false]);
    expect(shown(expand(child(parent, {}), granted(parent, "/etc", "read")))).toEqual(["/etc ro"]);
  });
});
