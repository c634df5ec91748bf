import { type ChildProcess, spawn } from "node:child_process";
import { once } from "node:events";
import { chownSync, cpSync, mkdirSync, mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { setTimeout as sleep } from "node:timers/promises";
import { PROGRAM } from "../../cli/program.ts";
import { giveGate } from "../../tiers/give-gate.ts";

const WORKER_UID = 65532;
export const isRoot = process.getuid?.() === 0;

const CORRAL_YAML = {
  version: 1,
  policy: "batch",
  sandbox: { mode: "direct", zones: { data: { path: "./data", mode: "ro" }, out: { path: "./out", mode: "rw" } } },
};
const SCRIPT =
  "n=$(tr -dc 0-9); sleep 0.4; tr a-z A-Z < /data/word > /out/$n.txt; cat /attachments/own.txt /attachments/word >> /out/$n.txt";
const WORKER = {
  command: ["sh", "-c", SCRIPT],
  sandbox: { zones: [{ name: "data" }, { name: "out", mode: "rw", approval: "pre_approved", stage: true }] },
};

export interface Process {
  readonly child: ChildProcess;
  /** Lines of its standard output, as JSON. */
  readonly lines: Record<string, unknown>[];
  readonly errors: () => string;
  readonly ended: Promise<number | null>;
}

/** Copies of one project in directories of their own, each with a state directory of its own. */
export async function places() {
  const base = mkdtempSync(join(tmpdir(), "corral-machines-"));
  const home = join(base, "home");
  mkdirSync(join(home, "workers"), { recursive: true });
  for (const zone of ["data", "out"]) mkdirSync(join(home, zone));
  writeFileSync(join(home, "corral.yaml"), JSON.stringify(CORRAL_YAML));
  writeFileSync(join(home, "workers/up.worker"), `---\n${JSON.stringify(WORKER)}\n---\n`);
  for (const name of ["one", "two"]) cpSync(home, join(base, name), { recursive: true });
  // Only the coordinator has what items read.
  writeFileSync(join(home, "data/word"), "hello\n");
  for (const name of ["home", "one", "two"]) await giveGate(join(base, `state-${name}`));
  if (isRoot) chownSync(join(home, "out"), WORKER_UID, WORKER_UID);
  const started: ChildProcess[] = [];
  /** `within`: words of a program that starts it. */
  const start = (
    name: string,
    args: readonly string[],
    env: Record<string, string>,
    within: readonly string[] = [],
  ): Process => {
    const [program = "", ...words] = [...within, process.execPath, PROGRAM, ...args, "-C", join(base, name)];
    const child = spawn(program, words, {
      env: { ...process.env, CORRAL_STATE_DIR: join(base, `state-${name}`), ...env },
      stdio: ["ignore", "pipe", "pipe"],
    });
    started.push(child);
    const lines: Record<string, unknown>[] = [];
    let [rest, errors] = ["", ""];
    child.stdout.on("data", (chunk: Buffer) => {
      const parts = `${rest}${chunk}`.split("\n");
      rest = parts.pop() ?? "";
      for (const line of parts) lines.push(JSON.parse(line));
    });
    child.stderr.on("data", (chunk: Buffer) => {
      errors += chunk;
    });
    return { child, lines, errors: () => errors, ended: once(child, "close").then(([code]) => code as number | null) };
  };
  return {
    base,
    home,
    start,
    [Symbol.dispose]() {
      for (const child of started) child.kill("SIGKILL");
      rmSync(base, { recursive: true, force: true });
    },
  };
}

export async function until(isSo: () => boolean, what: () => string, everyMs = 50): Promise<void> {
  const startedAt = performance.now();
  while (!isSo()) {
    if (performance.now() - startedAt > 60_000) throw new Error(`it did not happen: ${what()}`);
    await sleep(everyMs);
  }
}

export const told = ({ lines }: Process, type: string) => lines.filter((line) => line.type === type);
