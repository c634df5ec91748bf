import { mkdtemp, readFile, rm } from "node:fs/promises";
import { createServer } from "node:net";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { PassThrough, Writable } from "node:stream";
import { setTimeout as sleep } from "node:timers/promises";
import { stripVTControlCharacters } from "node:util";
import { expect, it, onTestFinished } from "vitest";
import { runVerb } from "../../src/cli/run/run.ts";
import type { Terminal } from "../../src/cli/terminal/terminal.ts";
import { projectFolder } from "../declarations/project-folder.ts";
import { giveGate } from "../tiers/give-gate.ts";

const [ENTER, DOWN] = ["\r", "\u001b[B"];

/** A user who presses these keys for each question, one after another. */
function terminalWith(answers: readonly (readonly string[])[], env: Terminal["env"], cwd: string) {
  const text = { stdout: "", stderr: "" };
  const stdin = Object.assign(new PassThrough(), { isTTY: true, setRawMode: () => stdin });
  const left = [...answers];
  let asked = 0;
  const sink = (name: "stdout" | "stderr", isTTY: boolean) =>
    Object.assign(
      new Writable({
        write(chunk, _, done) {
          text[name] += String(chunk);
          const questions = text.stderr.split("Allow it?").length - 1;
          if (questions > asked) void press(left.shift() ?? [ENTER]);
          asked = Math.max(asked, questions);
          done();
        },
      }),
      { isTTY, columns: 120, rows: 40 },
    );
  const press = async (keys: readonly string[]): Promise<void> => {
    // What it draws after each key has the question again.
    asked += keys.length;
    for (const key of keys) {
      await sleep(100);
      stdin.write(key);
    }
  };
  const terminal = {
    env,
    cwd,
    stdin,
    stdout: sink("stdout", false),
    stderr: sink("stderr", true),
    onStop: () => () => {},
    exit: () => {
      throw new Error("exit");
    },
  } as unknown as Terminal;
  return { terminal, stdout: () => text.stdout, stderr: () => stripVTControlCharacters(text.stderr) };
}

it("corral run --learn-network asks about a host, lets the worker reach it, and prints the change that allows it", async () => {
  const server = createServer((socket) => void socket.on("error", () => {}).end("hello\n"));
  await new Promise<void>((listening) => server.listen(0, "127.0.0.1", listening));
  onTestFinished(() => void server.close());
  const to = `localhost:${(server.address() as { port: number }).port}`;
  const connect = `perl -MIO::Socket::INET -e '$s = IO::Socket::INET->new("127.88.0.1:3128"); print $s "CONNECT ${to} HTTP/1.1\\r\\nHost: ${to}\\r\\n\\r\\n"; print while <$s>'`;
  const worker = { command: ["sh", "-c", connect], sandbox: { readonly: true } };
  const dir = await projectFolder({
    "corral.yaml": JSON.stringify({
      version: 1,
      sandbox: { paths: {}, network: { allow: [{ to, addresses: ["127.0.0.0/8", "::1/128"] }] } },
    }),
    "workers/w.worker": `---\n${JSON.stringify(worker)}\n---\n`,
  });
  const stateDir = await mkdtemp(join(tmpdir(), "corral-state-"));
  onTestFinished(() => rm(stateDir, { recursive: true, force: true }));
  await giveGate(stateDir);
  const env = { ...process.env, CORRAL_STATE_DIR: stateDir, NO_COLOR: "1" };
  const options = { project: dir, attach: [], learnNetwork: true };

  const yes = terminalWith([[DOWN, ENTER]], env, dir);
  expect(await runVerb("w", options, yes.terminal), yes.stderr()).toBe(0);
  expect(yes.stdout()).toContain("hello");
  expect(yes.stderr()).toContain(`Worker w asks to reach ${to}. Allow it?`);
  expect(yes.stderr()).toContain(`w: reach ${to} (once)`);
  expect(yes.stderr()).toContain("+++ b/workers/w.worker");
  expect(yes.stderr()).toMatch(new RegExp(`^\\+.*network.*${to}`, "m"));
  expect(yes.stderr()).not.toContain("+++ b/corral.yaml");

  const no = terminalWith([[ENTER]], env, dir);
  await runVerb("w", options, no.terminal);
  expect(no.stdout()).toContain("403");
  expect(no.stderr()).not.toContain("+++");
  expect(await readFile(join(dir, "workers/w.worker"), "utf8")).not.toContain("network");
});
