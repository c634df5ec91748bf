import { truncate } from "node:fs/promises";
import { join } from "node:path";
import { describe, expect, it } from "vitest";
import { openSessionIn } from "./session-fixture.ts";

const MEBIBYTE = 1024 ** 2;
const content = "x".repeat(MEBIBYTE);

describe.each([
  ["directly", { name: "out", mode: "rw", approval: "pre_approved" }],
  ["on a side", { name: "out", mode: "rw" }],
])("tools that write %s", (_, zone) => {
  const open = () =>
    openSessionIn(
      {
        workers: {
          w: {
            command: ["true"],
            sandbox: { zones: [{ name: "docs" }, zone] },
            shell_rules: { default: "pre_approved" },
            limits: { disk: "3m" },
          },
        },
        zones: { docs: "ro", out: "rw" },
        files: { "docs/large": "", "out/before": content.repeat(4) },
      },
      { approvalMode: "approve_all" },
    );

  it("write no more than the disk limit in all, together with the session's commands, until some is deleted", async () => {
    await using s = await open();
    expect((await s.exec("head -c 2M /dev/zero > /out/by-command")).status).toBe("succeeded");
    const codes: string[] = [];
    for (const n of [1, 2, 3, 4, 5, 6]) {
      const result = await s.tool("write_file", { path: `/out/${n}`, content });
      codes.push(result.ok ? "done" : result.code);
    }
    expect(codes.slice(0, 2)).toEqual(["done", "done"]);
    expect(codes.slice(-2)).toEqual(["DISK_LIMIT", "DISK_LIMIT"]);
    for (const [tool, input] of [
      ["append_file", { path: "/out/1", content: "x" }],
      ["edit_file", { path: "/out/before", edits: [{ old: "none", new: "y" }] }],
      ["copy_file", { from: "/out/1", to: "/out/copy" }],
    ] as const)
      expect(await s.tool(tool, input)).toMatchObject({ ok: false, code: "DISK_LIMIT" });
    expect(await s.tool("delete_file", { path: "/out/by-command" })).toMatchObject({ ok: true });
    expect(await s.tool("write_file", { path: "/out/again", content: "x" })).toMatchObject({ ok: true });
  });

  it("make no single file larger than it, whatever they copy", async () => {
    await using s = await open();
    await truncate(join(s.project.dir, "docs/large"), 100 * MEBIBYTE);
    expect(await s.tool("copy_file", { from: "/docs/large", to: "/out/loot" })).toMatchObject({
      ok: false,
      code: "FILE_TOO_LARGE",
    });
    expect(await s.tool("write_file", { path: "/out/large", content: content.repeat(4) })).toMatchObject({
      ok: false,
      code: "FILE_TOO_LARGE",
    });
  });
});

describe("the room that tools have", () => {
  const zones = {
    out: { path: "./out", mode: "rw" },
    a: { path: "./a", mode: "rw" },
    b: { path: "./a/inner", mode: "rw" },
  };
  const open = () =>
    openSessionIn(
      {
        workers: {
          w: {
            command: ["true"],
            sandbox: { zones: ["out", "a", "b"].map((name) => ({ name, mode: "rw", approval: "pre_approved" })) },
            limits: { disk: "3m" },
          },
        },
        zones: { out: "rw", a: "rw", b: "rw" },
        sandbox: { zones },
        files: { "a/inner/x": "y" },
      },
      { approvalMode: "approve_all" },
    );

  it("is looked at also where the place of one of their directories has gone away", async () => {
    await using s = await open();
    expect(await s.tool("move_file", { from: "/a/inner", to: "/a/elsewhere" })).toMatchObject({ ok: true });
    const codes: string[] = [];
    for (let n = 0; n < 8; n += 1) {
      const result = await s.tool("write_file", { path: `/out/${n}`, content });
      codes.push(result.ok ? "done" : result.code);
    }
    expect(codes.slice(-2)).toEqual(["DISK_LIMIT", "DISK_LIMIT"]);
  });

  it("is the same for many at once as for one after another", async () => {
    await using s = await open();
    const large = content.repeat(3).slice(1);
    const results = await Promise.all(
      Array.from({ length: 16 }, (_, n) => s.tool("write_file", { path: `/out/${n}`, content: large })),
    );
    expect(results.filter(({ ok }) => ok).length).toBeLessThan(3);
  });
});
