import { afterAll, beforeAll, describe, expect, it } from "vitest";
import { memoryEngine } from "../memory-engine.ts";
import { openSessionIn, type SessionFixture } from "./session-fixture.ts";

const KIB = 1024;
let s: SessionFixture;

beforeAll(async () => {
  s = await openSessionIn(
    {
      workers: {
        w: {
          command: ["true"],
          sandbox: { zones: [{ name: "docs" }, { name: "out", mode: "rw", approval: "pre_approved" }] },
          calls: ["kid"],
        },
        kid: { command: ["true"], sandbox: {} },
      },
      sandbox: {
        zones: {
          docs: { path: "./docs", mode: "ro", suffixes: [".md"], max_file_bytes: KIB },
          out: { path: "./out", mode: "rw", max_file_bytes: KIB },
        },
      },
      zones: { docs: "ro", out: "rw" },
      files: {
        "docs/a.md": "a",
        "docs/large.md": "x".repeat(2 * KIB),
        "docs/secret.key": "k",
        "docs/sub/b.md": "b",
        "docs/sub/other.bin": "b",
        "out/large": "x".repeat(3 * KIB),
      },
    },
    { engine: memoryEngine({ programs: {} }).open },
  );
});

afterAll(async () => {
  await s[Symbol.asyncDispose]();
});

async function told(tool: string, input: unknown): Promise<string> {
  const result = await s.tool(tool, input);
  return result.ok ? result.text : `${result.code}: ${result.message}`;
}

const TOO_LARGE = "Cannot access '/docs/large.md': its size is 2 KiB.\nLargest file allowed there: 1 KiB";

describe("a file that a view leaves out", () => {
  it.each([
    ["read_file", { path: "/docs/large.md" }, `FILE_TOO_LARGE: ${TOO_LARGE}`],
    ["file_info", { path: "/docs/large.md" }, `FILE_TOO_LARGE: ${TOO_LARGE}`],
    ["copy_file", { from: "/docs/large.md", to: "/out/c" }, `FILE_TOO_LARGE: ${TOO_LARGE}`],
    [
      "write_file",
      { path: "/out/large", content: "x" },
      "FILE_TOO_LARGE: Cannot access '/out/large': its size is 3 KiB.",
    ],
    ["delete_file", { path: "/out/large" }, "FILE_TOO_LARGE: Cannot access '/out/large': its size is 3 KiB."],
  ])("because it is too large is reported with its size and the limit: %s %j", async (tool, input, expected) => {
    expect(await told(tool, input)).toContain(expected);
  });

  it("because of its suffix gets the same answer as a name that does not exist", async () => {
    for (const tool of ["read_file", "file_info"]) {
      const answers = await Promise.all(["secret", "none"].map((name) => told(tool, { path: `/docs/${name}.key` })));
      expect(answers[0]).toMatch(/^SUFFIX_NOT_ALLOWED: .*\nAllowed suffixes: \.md$/);
      expect(answers[0]?.replace("secret", "none")).toBe(answers[1]);
    }
    expect(await told("read_file", { path: "/docs/none.md" })).toMatch(/^NOT_FOUND: /);
  });

  it("is counted by a listing, with the reason and without its name", async () => {
    expect(await told("list_files", { path: "/docs" })).toBe(
      "/docs/a.md (1 bytes)\n/docs/sub/\n[Entries that are not shown: 1 with another suffix (SUFFIX_NOT_ALLOWED), 1 too large (FILE_TOO_LARGE).]",
    );
    expect(await told("list_files", { path: "/", pattern: "**/*" })).toContain(
      "[Entries that are not shown: 2 with another suffix (SUFFIX_NOT_ALLOWED), 2 too large (FILE_TOO_LARGE).]",
    );
    expect(await told("list_files", { path: "/docs", pattern: "*.key" })).toContain("1 with another suffix");
    expect(await told("list_files", { path: "/docs/sub", pattern: "*.md" })).toBe("/docs/sub/b.md (1 bytes)");
  });

  it("is refused as an attachment in the same words", async () => {
    expect(await told("call_worker", { worker: "kid", attachments: ["/docs/large.md"] })).toContain(
      "its size is 2 KiB. Largest file allowed there: 1 KiB (FILE_TOO_LARGE)",
    );
    expect(await told("call_worker", { worker: "kid", attachments: ["/docs/secret.key"] })).toContain(
      "files of this kind are not allowed there. Allowed suffixes: .md (SUFFIX_NOT_ALLOWED)",
    );
  });
});
