import { execFileSync } from "node:child_process";
import { chmod, mkdir, mkdtemp, rm, stat, symlink, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { afterEach, beforeEach, describe, expect, it } from "vitest";
import { closeTree } from "../../../src/state/stored-environments.ts";

let dir: string;
beforeEach(async () => {
  dir = await mkdtemp(join(tmpdir(), "corral-tree-"));
  await mkdir(join(dir, "a/b"), { recursive: true });
});
afterEach(() => rm(dir, { recursive: true }));

const close = (maxBytes = 1000) => closeTree(dir, maxBytes);

describe("closeTree", () => {
  it("lets everybody read, and nobody else write", async () => {
    await writeFile(join(dir, "a/b/text"), "12345", { mode: 0o666 });
    await writeFile(join(dir, "a/program"), "", { mode: 0o700 });
    await chmod(join(dir, "a/b"), 0o000);
    await chmod(dir, 0o777);
    expect(await close()).toEqual({ ok: true, bytes: 5, entries: 4 });
    const modes = await Promise.all(
      ["", "a", "a/b", "a/b/text", "a/program"].map(async (path) =>
        ((await stat(join(dir, path))).mode & 0o7777).toString(8),
      ),
    );
    expect(modes).toEqual(["755", "755", "755", "644", "755"]);
  });

  it.each(["b/x", "../a/b", "../a/../a", "../../x", "/etc", "/env/python/x", "b/../../..", "..", ".", "b/./x", ""])(
    "a link in a folder of the tree to %j",
    async (text) => {
      if (text === "") return;
      await symlink(text, join(dir, "a/link"));
      const stays = ["b/x", "../a/b"].includes(text);
      expect(await close()).toMatchObject(
        stays ? { ok: true } : { ok: false, path: "a/link", reason: "is a link that may lead out of it" },
      );
    },
  );

  it("refuses a link that would leave by way of another link", async () => {
    await symlink("../..", join(dir, "a/b/up"));
    expect(await close()).toMatchObject({ ok: false, path: "a/b/up" });
  });

  it.each([0o4755, 0o2755, 0o6644])("refuses a file of mode %o", async (mode) => {
    await writeFile(join(dir, "a/x"), "");
    await chmod(join(dir, "a/x"), mode);
    expect(await close()).toEqual({ ok: false, path: "a/x", reason: "is setuid or setgid" });
  });

  it("refuses what is no file, and what is too much", async () => {
    execFileSync("mkfifo", [join(dir, "a/pipe")]);
    expect(await close()).toMatchObject({ ok: false, path: "a/pipe", reason: "is no file, folder or link" });
    await rm(join(dir, "a/pipe"));
    await writeFile(join(dir, "a/large"), Buffer.alloc(1001));
    expect(await close()).toMatchObject({ ok: false, path: "a/large" });
    await rm(join(dir, "a/large"));
    await mkdir(join(dir, "d/".repeat(101)), { recursive: true });
    expect(await close()).toMatchObject({ ok: false, reason: "is deeper than 100 folders" });
  });
});
