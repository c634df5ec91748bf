import { type ChildProcess, spawn } from "node:child_process";
import { once } from "node:events";
import { chownSync, cpSync, mkdirSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { describe, expect, it } from "vitest";
import { PROGRAM } from "../../cli/program.ts";
import { withinProcess } from "../../cli/within-process.ts";
import { WORKER_UID } from "../../run/project-fixture.ts";
import { giveGate } from "../../tiers/give-gate.ts";
import { serverPrograms, startServer } from "../postgres/server-fixture.ts";

const FILES = {
  "corral.yaml": {
    ...{ version: 1, policy: "batch", approval: { inbox: "wait", timeout: "60s" } },
    sandbox: { mode: "direct", zones: { data: { path: "./data" }, out: { path: "./out", mode: "rw" } } },
  },
  // What an agent does that is asked: commands, a call, and what it wrote.
  "s.yaml": [
    { calls: [{ exec: { command: "cat /data/word" } }] },
    { calls: [{ exec: { command: "cat /data/secret" } }] },
    { calls: [{ call_worker: { worker: "helper", input: 1 } }] },
    { calls: [{ write_file: { path: "/out/said", content: "text" } }] },
    { say: "done" },
  ],
};
const agent = {
  model: "script/s.yaml",
  tools: ["exec", "call_worker", "write_file"],
  calls: ["helper"],
  sandbox: { approval: { call: "ask" }, zones: [{ name: "data" }, { name: "out", mode: "rw" }] },
};
const helper = { command: ["sh", "-c", "cat >/dev/null; cat /data/word"], sandbox: { zones: [{ name: "data" }] } };

describe.skipIf(serverPrograms() === null || process.getuid?.() !== 0)("an agent on a machine", () => {
  it("is answered in the inbox of its coordinator, calls there where it runs, and its changes are asked about at home", async () => {
    await using server = await startServer();
    const base = mkdtempSync(join(tmpdir(), "corral-asking-"));
    const home = join(base, "home");
    for (const folder of ["workers", "data", "out"]) mkdirSync(join(home, folder), { recursive: true });
    for (const [name, value] of Object.entries(FILES)) writeFileSync(join(home, name), JSON.stringify(value));
    for (const [name, value] of Object.entries({ agent, helper }))
      writeFileSync(join(home, `workers/${name}.worker`), `---\n${JSON.stringify(value)}\n---\nDo it.\n`);
    cpSync(home, join(base, "one"), { recursive: true });
    writeFileSync(join(home, "data/word"), "hello\n");
    chownSync(join(home, "out"), WORKER_UID, WORKER_UID);
    writeFileSync(join(base, "items.jsonl"), "{}\n");
    for (const name of ["home", "one"]) await giveGate(join(base, `state-${name}`));
    const started: ChildProcess[] = [];
    const env = (name: string) => ({
      ...process.env,
      CORRAL_QUEUE: server.url,
      CORRAL_STATE_DIR: join(base, `state-${name}`),
    });
    const start = (name: string, ...args: string[]) => {
      const child = spawn(process.execPath, [PROGRAM, ...args, "-C", join(base, name)], { env: env(name) });
      started.push(child);
      let said = "";
      for (const stream of [child.stdout, child.stderr]) stream.on("data", (chunk: Buffer) => (said += chunk));
      return { child, said: () => said, ended: once(child, "close").then(([code]) => code as number | null) };
    };
    const corral = async (...args: string[]) =>
      (await withinProcess(args, { env: env("home"), cwd: home, stdin: "" })).stdout;
    try {
      const work = start("one", "work", "--name", "one", "--concurrency", "1");
      const map = start(
        "home",
        "map",
        "agent",
        "--manifest",
        join(base, "items.jsonl"),
        "--concurrency",
        "0",
        "--machines",
      );
      const questions: Record<string, unknown>[] = [];
      for (const answer of ["once", "no", "once", "once"]) {
        type Listed = { id: string; question: Record<string, unknown> }[];
        const listed = async () => JSON.parse(await corral("approvals", "ls", "--json")).approvals as Listed;
        await expect
          .poll(async () => (await listed()).length, { timeout: 40_000, message: map.said() + work.said() })
          .toBe(1);
        const [{ id = "", question = {} } = {}] = await listed();
        questions.push(question);
        await corral("approvals", "decide", id, answer);
        await expect.poll(async () => (await listed())[0]?.id, { timeout: 30_000 }).not.toBe(id);
      }
      expect(await map.ended, map.said() + work.said()).toBe(0);
      expect(questions).toMatchObject([
        { operations: ["exec"], command: "cat /data/word", machine: "one", worker: "agent" },
        { operations: ["exec"], command: "cat /data/secret", machine: "one" },
        { operations: ["call"], callee: "helper", machine: "one" },
        { operations: ["write"], paths: ["/out/said"], diff: expect.stringContaining("+text") },
      ]);
      // The coordinator derives and shows what the item itself wrote: that is no machine's word.
      expect(questions[3]).not.toHaveProperty("machine");
      expect(readFileSync(join(home, "out/said"), "utf8")).toBe("text");
      const trail = await corral("audit", "--type", "approval", "--json");
      const outcomes = trail
        .trim()
        .split("\n")
        .map((line) => (JSON.parse(line) as { outcome: string }).outcome);
      expect(outcomes).toEqual(["approved", "denied", "approved", "approved"]);
      work.child.kill("SIGTERM");
      expect(await work.ended, work.said()).toBe(0);
    } finally {
      for (const child of started) child.kill("SIGKILL");
      rmSync(base, { recursive: true, force: true });
    }
  }, 150_000);
});
