import { execFileSync } from "node:child_process";
import fs from "node:fs";
import { join } from "node:path";
import { describe, expect, it } from "vitest";
import { openHostFiles } from "../../../src/files/host/host-files.ts";
import { mountedPlace } from "../../../src/files/model/files.ts";
import { type FileOperation, withRefusals } from "../../../src/files/model/refusals.ts";
import { SandboxError } from "../../../src/sandbox/errors.ts";
import { at, mount } from "../../sandbox/sandboxes.ts";
import { temporaryFolder } from "../temporary-folder.ts";

const SECRET = "/srv/host-place";

function systemError(code: string): Error {
  return Object.assign(new Error(`${code}: refused, open '${SECRET}'`), { code, syscall: "open", path: SECRET });
}

async function refusal(operation: FileOperation, error: Error): Promise<SandboxError> {
  const refused: unknown = await withRefusals(operation, "/data/f", () => Promise.reject(error)).catch(
    (it: unknown) => it,
  );
  if (!(refused instanceof SandboxError)) throw refused;
  return refused;
}

describe("what the system refuses", () => {
  it.each<[FileOperation, string, string]>([
    ["read", "ENOENT", "NotFoundError: Cannot find '/data/f': it does not exist."],
    ["read", "EACCES", "PermissionError: Cannot read '/data/f': the file permissions do not allow it."],
    ["delete", "EPERM", "PermissionError: Cannot delete '/data/f': the system does not allow it"],
    ["move", "EROFS", "PermissionError: Cannot write '/data/f': its file system is read-only."],
    ["write", "ENOSPC", "FileSystemError: Cannot write '/data/f': the disk is full."],
    ["mkdir", "ENAMETOOLONG", "FileSystemError: Cannot create '/data/f': the name is too long."],
    ["append", "EISDIR", "FileSystemError: Cannot write '/data/f': it is a directory."],
    ["stat", "ENOTDIR", "FileSystemError: Cannot inspect '/data/f': part of its path is a file, not a directory."],
    ["copy", "EEXIST", "FileSystemError: Cannot copy '/data/f': it already exists."],
    ["edit", "EMFILE", "FileSystemError: Cannot edit '/data/f': too many files are open."],
    ["list", "EUNHEARDOF", "FileSystemError: Cannot list '/data/f': the file system reported EUNHEARDOF."],
  ])("to %s with %s is reported in virtual paths, and the cause is kept", async (operation, code, text) => {
    const cause = systemError(code);
    const refused = await refusal(operation, cause);
    expect(`${refused.name}: ${refused.message}`).toContain(text);
    expect(refused.message).not.toContain(SECRET);
    expect(refused.path).toBe("/data/f");
    if (code !== "ENOENT") expect(refused.cause).toBe(cause);
  });

  it("is not taken for what is a mistake of ours", async () => {
    const bug = new TypeError("x is not a function");
    await expect(withRefusals("read", "/data/f", () => Promise.reject(bug))).rejects.toBe(bug);
  });

  it("leaves the old file and nothing else, where a disk is full or read-only", async () => {
    const folder = temporaryFolder();
    const disk = join(folder.path, "disk");
    fs.mkdirSync(disk);
    execFileSync("mount", ["-t", "tmpfs", "-o", "size=64k", "tmpfs", disk]);
    try {
      using files = openHostFiles([{ path: at("/data"), host: disk }]);
      const place = mountedPlace([mount("/data", "rw")], at("/data/f"));
      if (place === null) throw new Error("no place");
      await files.write(place, "old");
      await expect(files.write(place, "x".repeat(1_000_000))).rejects.toThrow(/disk is full/);
      expect([fs.readdirSync(disk), fs.readFileSync(join(disk, "f"), "utf8")]).toEqual([["f"], "old"]);
      execFileSync("mount", ["-o", "remount,ro", disk]);
      await expect(files.write(place, "new")).rejects.toThrow(/Cannot write '\/data\/f': .*read-only/);
      await expect(files.delete(place)).rejects.toThrow(/read-only/);
      expect(await files.read(place)).toMatchObject({ content: "old" });
    } finally {
      execFileSync("umount", [disk]);
      folder.remove();
    }
  });
});
