import { readdir, readFile } from "node:fs/promises";
import { join } from "node:path";
import { afterEach, describe, expect, it } from "vitest";
import type { ApprovalRequest, Approver, Decision } from "../../../src/approval/approver.ts";
import type { OpenFixtureOptions } from "../project-fixture.ts";
import { openSessionIn, type SessionFixture } from "./session-fixture.ts";

const RULES = {
  default: "ask",
  rules: [
    { pattern: "echo **", approval: "pre_approved" },
    { pattern: "rm **", approval: "blocked", why: "nothing is removed here" },
    { pattern: "cd /out", approval: "pre_approved" },
  ],
};
const APPROVED: Decision = { outcome: "approved", scope: "once", reason: "why not" };
const DENIED: Decision = { outcome: "denied", scope: "once", reason: "not today" };
const TIMED_OUT: Decision = { outcome: "timed_out", scope: "once", reason: "nobody answered in time" };

let opened: SessionFixture | null = null;

afterEach(async () => {
  await opened?.[Symbol.asyncDispose]();
  opened = null;
});

async function open(options: OpenFixtureOptions, rules: unknown = RULES): Promise<SessionFixture> {
  const zones = [{ name: "docs" }, { name: "out", mode: "rw" }, { name: "free", mode: "rw", approval: "pre_approved" }];
  const shut = { name: "shut", mode: "rw", approval: { write: "blocked", delete: "blocked" } };
  opened = await openSessionIn(
    {
      workers: { w: { command: ["true"], sandbox: { zones: [...zones, shut] }, shell_rules: rules } },
      zones: { docs: "ro", out: "rw", free: "rw", shut: "rw" },
      files: { "out/a": "a", "free/f": "f", "shut/s": "s", "docs/d": "d" },
    },
    options,
  );
  return opened;
}

/** A person who answers always the same, and remembers what they were asked. */
function person(decision: Decision): Approver & { readonly asked: ApprovalRequest[] } {
  const asked: ApprovalRequest[] = [];
  return {
    asked,
    async decide(request) {
      asked.push(request);
      return decision;
    },
  };
}

describe("a command", () => {
  it("that a rule approves runs, and nobody is asked", async () => {
    const nobody = person(DENIED);
    const s = await open({ person: nobody });
    expect(await s.tool("exec", { command: "echo a && echo b", cwd: "/out" })).toMatchObject({
      ok: true,
      text: "a\nb\n",
    });
    expect(nobody.asked).toEqual([]);
  });

  it("that a rule blocks is refused in the rule's words, whoever would agree", async () => {
    const s = await open({ approvalMode: "approve_all" });
    const refused = await s.tool("exec", { command: "echo a; rm -rf /out" });
    expect(refused).toMatchObject({ ok: false, code: "COMMAND_BLOCKED" });
    expect(!refused.ok && refused.message).toContain("nothing is removed here");
    expect((await s.project.traces()).filter((trace) => trace.startsWith("cell"))).toEqual([]);
  });

  it("that is asked about runs where a person agrees, each time anew", async () => {
    const agrees = person(APPROVED);
    const s = await open({ person: agrees });
    for (const _ of [1, 2]) expect(await s.tool("exec", { command: "wc -c < /docs/d" })).toMatchObject({ ok: true });
    const { run } = agrees.asked[0] ?? {};
    const command = "wc -c < /docs/d";
    const asked = { run, root: run, worker: "w", operations: ["exec"], paths: [], command, line: command };
    expect(agrees.asked).toEqual([asked, asked]);
  });

  it("is refused where they do not, where nobody answers, and where nobody is there", async () => {
    const command = "seq 3";
    const denied = await (await open({ person: person(DENIED) })).tool("exec", { command });
    expect(denied).toMatchObject({ ok: false, code: "APPROVAL_DENIED" });
    expect(!denied.ok && denied.message).toMatch(/^`seq 3` needs approval: .* It was denied: not today\.$/s);
    await opened?.[Symbol.asyncDispose]();
    const late = await (await open({ person: person(TIMED_OUT) })).tool("exec", { command });
    expect(late).toMatchObject({ ok: false, code: "APPROVAL_TIMED_OUT" });
    expect(!late.ok && late.message).toMatch(/ No answer came in time\.$/);
    await opened?.[Symbol.asyncDispose]();
    const headless = await (await open({})).tool("exec", { command });
    expect(headless).toMatchObject({ ok: false, code: "APPROVAL_DENIED" });
    expect(!headless.ok && headless.message).toContain("no approver is set");
  });

  it.each([
    [{ env: { PATH: "/out" } }, "it sets a variable", "with PATH='/out'"],
    [{ stdin: "rm -rf /" }, "it passes text", 'reading "rm -rf /"'],
    [{ cwd: "/docs" }, "`cd /docs` needs approval", "in '/docs'"],
    [{ stdin: "x".repeat(2000) }, "it passes text", "1500 characters more, SHA-256"],
  ])(
    "is asked about with all that stands beside it, though a rule approves its words: %j",
    async (beside, why, shown) => {
      const denies = person(DENIED);
      const s = await open({ person: denies });
      const refused = await s.tool("exec", { command: "echo a", ...beside });
      expect(refused).toMatchObject({ ok: false, code: "APPROVAL_DENIED", message: expect.stringContaining(why) });
      expect(denies.asked[0]?.command).toMatch(/^echo a\n/);
      expect(denies.asked[0]?.command).toContain(shown);
    },
  );

  it("that is cancelled while a person thinks is cancelled, and never runs", async () => {
    const cancelling = new AbortController();
    const thinks: Approver = {
      decide: (_, signal) =>
        new Promise((_resolve, reject) => {
          signal.addEventListener("abort", () => reject(signal.reason));
          cancelling.abort();
        }),
    };
    const s = await open({ person: thinks });
    const result = await s.tool("exec", { command: "touch /free/x" }, cancelling.signal);
    expect(result).toEqual({ ok: false, code: "CANCELLED", message: "It was cancelled.", data: {} });
  });
});

describe("a file tool", () => {
  it("asks for each operation by itself, and does what was agreed to", async () => {
    const agrees = person(APPROVED);
    const s = await open({ person: agrees });
    const asked = async (name: string, input: unknown): Promise<string[]> => {
      agrees.asked.length = 0;
      expect(await s.tool(name, input)).toMatchObject({ ok: true });
      return agrees.asked.map(({ operations, paths }) => `${operations} ${paths}`);
    };
    expect(await asked("read_file", { path: "/out/a" })).toEqual([]);
    expect(await asked("write_file", { path: "out/b", content: "b" })).toEqual(["write /out/b"]);
    expect(await asked("append_file", { path: "/out/b", content: "b" })).toEqual(["write /out/b"]);
    expect(await asked("edit_file", { path: "/out/b", edits: [{ old: "bb", new: "c" }] })).toEqual(["write /out/b"]);
    expect(await asked("copy_file", { from: "/docs/d", to: "/out/d" })).toEqual(["write /out/d"]);
    expect(await asked("move_file", { from: "/out/d", to: "/out/e" })).toEqual(["delete /out/d", "write /out/e"]);
    expect(await asked("move_file", { from: "/out/e", to: "/free/e" })).toEqual(["delete /out/e"]);
    expect(await asked("copy_file", { from: "/out/b", to: "/free/b" })).toEqual([]);
    expect(await asked("delete_file", { path: "/out/b" })).toEqual(["delete /out/b"]);
    expect(await asked("delete_file", { path: "/free/b" })).toEqual([]);
  });

  it("does nothing without consent, and says who did not give it", async () => {
    const s = await open({});
    for (const [name, input] of [
      ["write_file", { path: "/out/a", content: "changed" }],
      ["delete_file", { path: "/out/a" }],
      ["move_file", { from: "/free/f", to: "/out/f" }],
      ["move_file", { from: "/out/a", to: "/free/a" }],
    ] as const) {
      const result = await s.tool(name, input);
      expect(result).toMatchObject({ ok: false, code: "APPROVAL_DENIED" });
      expect(!result.ok && result.message).toMatch(/^To (write|delete) \/out\/\w needs approval, and it was denied: /);
    }
    expect(await s.tool("read_file", { path: "/out/a" })).toMatchObject({ text: "a" });
    expect(await s.tool("read_file", { path: "/free/f" })).toMatchObject({ text: "f" });
  });

  it("is refused what is blocked, and nobody is asked", async () => {
    const agrees = person(APPROVED);
    const s = await open({ person: agrees });
    expect(await s.tool("write_file", { path: "/shut/s", content: "" })).toMatchObject({ code: "PERMISSION" });
    expect(await s.tool("delete_file", { path: "/shut/s" })).toMatchObject({ code: "PERMISSION" });
    expect(agrees.asked).toEqual([]);
  });

  it("and a command see the same in what asks, and what the command changed is asked about in the end", async () => {
    const agrees = person(APPROVED);
    const s = await open({ person: agrees }, { default: "pre_approved" });
    expect(await s.tool("write_file", { path: "/out/x", content: "x" })).toMatchObject({ ok: true });
    expect(await s.tool("write_file", { path: "/out/kept", content: "k" })).toMatchObject({ ok: true });
    const result = await s.tool("exec", { command: "cat /out/x; echo y > /out/x" });
    expect(result).toMatchObject({ ok: true, data: { status: "succeeded", stdout: "x" } });
    expect(await s.tool("read_file", { path: "/out/x" })).toMatchObject({ ok: true, text: "y\n" });
    expect(await readdir(join(s.project.dir, "out"))).not.toContain("x");
    expect(await s.finish()).toMatchObject({ failure: null, changeset: { counts: { applied: 2 } } });
    // What the tool wrote and nobody touched since was agreed to already.
    expect(agrees.asked.at(-1)).toMatchObject({ operations: ["write"], paths: ["/out/x"] });
    expect(await readFile(join(s.project.dir, "out/x"), "utf8")).toBe("y\n");
    expect(await readFile(join(s.project.dir, "out/kept"), "utf8")).toBe("k");
  });

  it("that is used before changes are committed sees them on the host after, and goes on", async () => {
    const agrees = person(APPROVED);
    const s = await open({ person: agrees }, { default: "pre_approved" });
    await s.tool("exec", { command: "echo 1 > /out/n" });
    expect(await s.tool("commit_changes", {})).toMatchObject({ ok: true, data: { changes: [{ outcome: "applied" }] } });
    expect(await readFile(join(s.project.dir, "out/n"), "utf8")).toBe("1\n");
    expect(await s.tool("commit_changes", {})).toMatchObject({ ok: true, data: { changes: [] } });
    await s.tool("exec", { command: "echo 2 > /out/n; echo m > /out/m" });
    expect(await s.finish()).toMatchObject({ failure: null, changeset: { counts: { applied: 2, conflict: 0 } } });
    expect(await readFile(join(s.project.dir, "out/n"), "utf8")).toBe("2\n");
    expect(agrees.asked.map(({ paths }) => paths)).toEqual([["/out/n"], ["/out/m", "/out/n"]]);
  });

  it("is told that changes were not applied, where they are committed and nobody agrees", async () => {
    const s = await open({ person: person(DENIED) }, { default: "pre_approved" });
    await s.tool("exec", { command: "echo 1 > /out/n" });
    expect(await s.tool("commit_changes", {})).toMatchObject({ ok: false, code: "APPROVAL_DENIED" });
    expect(await s.tool("read_file", { path: "/out/n" })).toMatchObject({ ok: true });
    expect(await s.finish()).toMatchObject({ failure: { status: "denied" } });
  });
});
