import { chmod, chown, mkdir, mkdtemp, realpath, rm, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { afterEach, beforeEach, describe, expect, it } from "vitest";
import { lendings } from "../../../src/changes/view/lending.ts";
import { loadPolicy } from "../../../src/declarations/policy/policy.ts";
import type { Mount } from "../../../src/sandbox/mount.ts";
import type { VirtualPath } from "../../../src/sandbox/virtual-path.ts";

const CELL = { uid: 65532, gid: 65532 };
const ANOTHER = { uid: 23456, gid: 23457 };

let dir: string;

beforeEach(async () => {
  dir = await realpath(await mkdtemp(join(tmpdir(), "corral-lent-")));
  await chmod(dir, 0o755);
});
afterEach(() => rm(dir, { recursive: true }));

async function folder(name: string, { owner = { uid: 0, gid: 0 }, mode = 0o644 } = {}): Promise<string> {
  await mkdir(join(dir, name, "deep"), { recursive: true });
  await writeFile(join(dir, name, "deep/file"), "x");
  await chmod(join(dir, name, "deep/file"), mode);
  for (const path of [name, `${name}/deep`, `${name}/deep/file`]) await chown(join(dir, path), owner.uid, owner.gid);
  return join(dir, name);
}

const mount = (host: string, mode: "ro" | "rw", more: Partial<Mount> = {}): Mount => {
  const name = host.split("/").at(-1) ?? "";
  return { name, path: `/${name}` as VirtualPath, host, mode, ...more };
};

async function lent(mounts: readonly Mount[], policy = "untrusted", refused: readonly string[] = []) {
  const sandbox = { mounts, policy: await loadPolicy(policy, { dirs: [] }) };
  return Object.fromEntries(lendings(sandbox, (host) => refused.includes(host)));
}

describe.runIf(process.getuid?.() === 0)("what is shown as a copy that belongs to the user of the cell", () => {
  it("is what root alone can read, and what root alone can write if it is staged", async () => {
    const [open, closed, out] = [await folder("open"), await folder("closed", { mode: 0o600 }), await folder("out")];
    const mounts = [mount(open, "ro"), mount(closed, "ro"), mount(out, "rw", { stage: true })];
    expect(await lent(mounts)).toEqual({ "/closed": CELL, "/out": CELL });
    expect(await lent(mounts, "untrusted", [closed]), "nothing is looked into that no cell may see").toEqual({
      "/out": CELL,
    });
    expect(await lent(mounts, "default"), "the policy runs workers as root").toEqual({});
  });

  it("is never what a worker writes directly: that would stay in the copy", async () => {
    const both = { write: "pre_approved", delete: "pre_approved" } as const;
    expect(await lent([mount(await folder("out"), "rw", { approval: both })])).toEqual({});
  });

  it("belongs to the owner of the other directories, so that these need no copy", async () => {
    const theirs = await folder("theirs", { owner: ANOTHER, mode: 0o600 });
    const own = await folder("own", { mode: 0o600 });
    expect(await lent([mount(theirs, "ro"), mount(own, "ro")])).toEqual({ "/own": ANOTHER });
    expect(await lent([mount(theirs, "rw", { stage: true }), mount(own, "rw", { stage: true })])).toEqual({
      "/own": ANOTHER,
    });
  });

  it("is a directory that has a closed one in it, and one file", async () => {
    const shut = await folder("shut");
    await chmod(join(shut, "deep"), 0o700);
    const file = join(dir, "one");
    await writeFile(file, "x", { mode: 0o600 });
    expect(await lent([mount(shut, "ro"), mount(file, "ro")])).toEqual({ "/shut": CELL, "/one": CELL });
  });
});
