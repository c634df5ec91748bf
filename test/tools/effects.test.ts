import { readdir, readFile } from "node:fs/promises";
import { join } from "node:path";
import { describe, expect, it } from "vitest";
import { TOOLS } from "../../src/tools/toolbox.ts";
import { writable } from "../run/project-fixture.ts";
import { openSessionIn, type SessionFixture } from "../run/session/session-fixture.ts";

/** Uses of each file tool; each changes as much as the tool can. */
const USES: Readonly<Record<string, readonly object[]>> = {
  read_file: [{ path: "/out/a" }],
  list_files: [{ path: "/" }, { path: "/out", pattern: "**" }],
  file_info: [{ path: "/out/a" }],
  write_file: [{ path: "/out/a", content: "new" }],
  edit_file: [{ path: "/out/a", edits: [{ old: "old", new: "older" }] }],
  append_file: [{ path: "/out/a", content: "more" }],
  delete_file: [{ path: "/out/sub", recursive: true }],
  move_file: [{ from: "/out/a", to: "/out/b", overwrite: true }],
  copy_file: [{ from: "/out/a", to: "/out/b", overwrite: true }],
};

async function opened(): Promise<SessionFixture> {
  return await openSessionIn({
    workers: { w: { command: ["true"], sandbox: { zones: [writable("out")] } } },
    zones: { out: "rw" },
    files: { "out/a": "old text", "out/b": "b", "out/sub/c": "c" },
  });
}

/** Every file and its content. */
async function treeOf(s: SessionFixture): Promise<Record<string, string>> {
  const out = join(s.project.dir, "out");
  const entries = await readdir(out, { recursive: true, withFileTypes: true });
  const files = entries.filter((entry) => entry.isFile()).map((entry) => join(entry.parentPath, entry.name));
  return Object.fromEntries(
    await Promise.all(files.sort().map(async (path) => [path, await readFile(path, "utf8")] as const)),
  );
}

describe("what is said of a tool's effects", () => {
  it.each(Object.entries(USES))("is true of %s", async (name, inputs) => {
    await using s = await opened();
    const { readOnly, destructive, idempotent } = TOOLS.get(name)?.effects ?? {};
    for (const input of inputs) {
      const before = await treeOf(s);
      expect(await s.tool(name, input)).toMatchObject({ ok: true });
      const after = await treeOf(s);
      expect(JSON.stringify(after) === JSON.stringify(before)).toBe(readOnly);
      const kept = Object.entries(before).every(([path, content]) => after[path]?.startsWith(content));
      expect(kept).toBe(!destructive);
      await s.tool(name, input);
      if (idempotent) expect(await treeOf(s)).toEqual(after);
    }
  });

  it("is known of every tool, and is what it was", () => {
    const flags = (name: string): string => {
      const { readOnly, destructive, idempotent, openWorld } = TOOLS.get(name)?.effects ?? {};
      const said = Object.entries({ readOnly, destructive, idempotent, openWorld });
      return said.flatMap(([flag, is]) => (is ? [flag] : [])).join(" ");
    };
    expect(Object.fromEntries([...TOOLS.keys()].map((name) => [name, flags(name)]))).toEqual({
      read_file: "readOnly idempotent",
      list_files: "readOnly idempotent",
      file_info: "readOnly idempotent",
      write_file: "destructive idempotent",
      edit_file: "destructive",
      append_file: "",
      delete_file: "destructive idempotent",
      move_file: "destructive",
      copy_file: "destructive idempotent",
      commit_changes: "destructive idempotent",
      exec: "destructive openWorld",
      call_worker: "destructive openWorld",
      request_access: "idempotent",
      git_pull: "destructive openWorld",
      git_stage: "",
      git_push: "destructive openWorld",
      git_discard: "destructive idempotent",
    });
  });

  it("never calls destructive or worldly what only reads", () => {
    for (const { effects } of TOOLS.values())
      if (effects.readOnly) expect(effects).toMatchObject({ destructive: false, openWorld: false });
  });
});
