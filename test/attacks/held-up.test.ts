import { describe, expect, it } from "vitest";
import { ruling } from "../../src/approval/rules.ts";
import { decideShell } from "../../src/approval/shell-rules/decide.ts";
import { textDiff } from "../../src/files/diff/text-diff.ts";
import { applyEdits } from "../../src/files/edit/apply-edits.ts";
import { openSessionIn } from "../run/session/session-fixture.ts";

/** The set-up of this folder fails each of these if Corral needs its thread for too long. */
describe("input that takes long to look at", () => {
  const KIB = 1024;

  it.each<[program: string, piece: string]>([
    ...["a;", "a&&", "x ", "$x", ">a ", "<<E ", "`a`", "~/ ", "$(a "].map((piece): [string, string] => ["ls", piece]),
    // Each argument of these is looked at: they may run what it says.
    ["find", "-x "],
    ["test", "[x "],
  ])("is a command line of %s and many %j, under as many rules as there may be", (program, piece) => {
    const command = `${program} ${piece.repeat(65_000 / piece.length)}`;
    const patterns = Array.from({ length: 200 }, (_, at) => `git a${at} *b*c* **`);
    const rules = patterns.map((pattern) => ({ pattern, approval: "pre_approved" as const }));
    expect(decideShell(command, { default: "ask", rules }).consent).toBe("ask");
    const decide = ruling(patterns.map((pattern) => ({ command: pattern, decide: "deny" })));
    decide({ run: "r", root: "r", worker: "w", operations: ["exec"], paths: [], command });
  });

  it.each<[string, (size: number) => string[]]>([
    [
      "of many short lines",
      (size) => Array.from({ length: size / 2 }, (_, at) => "ab"[(at * 7919) % 3 === 0 ? 1 : 0] ?? ""),
    ],
    ["of lines that alternate", (size) => Array.from({ length: size / 2 }, (_, at) => "abc"[at % 3] ?? "")],
    ["of empty lines", (size) => Array.from({ length: size }, () => "")],
  ])("is a diff %s", (_what, lines) => {
    const content = lines(256 * KIB);
    textDiff(
      Buffer.from(content.join("\n")),
      Buffer.from(
        content
          .toReversed()
          .join("\nb\n")
          .slice(0, 256 * KIB),
      ),
    );
  });

  it("are edits that search a long text many times", () => {
    const content = "a".repeat(9 * KIB * KIB);
    const edits = Array.from({ length: 4 }, () => ({ old: `${"a".repeat(KIB * KIB)}b`, new: "c" }));
    expect(() => applyEdits("/a", content, edits)).toThrow(/not found/);
  });

  it("are as many variables, fields or parts as a request can have", async () => {
    await using s = await openSessionIn({ workers: { w: { command: ["true"], sandbox: {} } } });
    const names = Object.fromEntries(Array.from({ length: 100_000 }, (_, at) => [`A${at}`, ""]));
    for (const input of [
      { command: "ls", env: names },
      { command: "ls", ...names },
      { command: Object.values(names) },
    ]) {
      await new Promise((resolve) => setImmediate(resolve));
      expect(await s.tool("exec", input)).toMatchObject({ ok: false, code: "BAD_INPUT" });
    }
  });
});
