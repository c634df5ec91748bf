import { mkdir, mkdtemp, realpath, rm, symlink, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { afterAll, beforeAll, describe, expect, it } from "vitest";
import { attachedPaths } from "../../src/cli/run/attachments.ts";
import { resolveAttachments } from "../../src/operations/workers.ts";
import type { Sandbox } from "../../src/sandbox/sandbox.ts";
import { ROOT } from "../../src/sandbox/virtual-path.ts";

let cwd: string;
let project: Sandbox;

beforeAll(async () => {
  cwd = await realpath(await mkdtemp(join(tmpdir(), "corral-attach-")));
  await mkdir(join(cwd, "zone"));
  for (const name of ["a.txt", "k=v.txt", "k=v", "zone/z.txt"]) await writeFile(join(cwd, name), name);
  await symlink(join(cwd, "a.txt"), join(cwd, "link"));
  await symlink(join(cwd, "a.txt"), join(cwd, "zone/planted"));
  const zone = { name: "docs", path: "/docs", host: join(cwd, "zone"), mode: "ro" };
  project = { mounts: [zone], workingDir: ROOT } as unknown as Sandbox;
});

afterAll(async () => {
  await rm(cwd, { recursive: true, force: true });
});

const resolve = async (...raws: string[]) => resolveAttachments(await attachedPaths(raws, cwd), project, cwd);

describe("--attach", () => {
  it.each([
    ["a.txt", "a.txt", "a.txt"],
    ["a.txt=in.pdf", "in.pdf", "a.txt"],
    ["k=v.txt", "k=v.txt", "k=v.txt"],
    ["k=v.txt=b", "b", "k=v.txt"],
    ["k=v", "k=v", "k=v"],
    ["link", "link", "a.txt"],
    ["/docs/z.txt", "z.txt", "zone/z.txt"],
    ["docs:z.txt=y", "y", "zone/z.txt"],
  ])("takes %s as %s", async (raw, name, host) => {
    expect(await resolve(raw)).toEqual([{ name, host: join(cwd, host) }]);
  });

  it.each([
    ["zone", "not a regular file"],
    ["/docs", "not a regular file"],
    ["/docs/none.txt", "no such file"],
    ["docs:../../etc/passwd", "no such file"],
    ["nowhere/x", "no such file"],
    ["/docs/planted", "not a regular file"],
    ["a.txt=..", "is not a file name"],
  ])("refuses %s: %s", async (raw, reason) => {
    await expect(resolve(raw)).rejects.toThrow(reason);
  });

  it("refuses two attachments of one name", async () => {
    await expect(resolve("a.txt", "/docs/z.txt=a.txt")).rejects.toThrow("another attachment has the name a.txt");
  });
});
