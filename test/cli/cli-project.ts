import { type ChildProcess, spawn } from "node:child_process";
import { chownSync, mkdirSync, rmSync, writeFileSync } from "node:fs";
import { mkdtemp } from "node:fs/promises";
import { tmpdir } from "node:os";
import { dirname, join } from "node:path";
import type { CellInfo } from "../../src/isolation/port/driver.ts";
import { listCells } from "../../src/operations/machine.ts";
import { giveGate } from "../tiers/give-gate.ts";
import { PROGRAM } from "./program.ts";
import { withinProcess } from "./within-process.ts";

/** The user that cells run as where nothing else is said. */
const WORKER_UID = 65532;

export interface Outcome {
  readonly status: number | null;
  readonly signal: NodeJS.Signals | null;
  readonly stdout: string;
  readonly stderr: string;
}

export interface StartOptions {
  /** Null: it stays open, and is the test's to write. */
  readonly stdin?: string | Uint8Array | null;
  readonly env?: Readonly<Record<string, string>>;
  /** The working directory, below the project's. */
  readonly cwd?: string;
}

/** A project in a temporary folder, and the command line for it, with a state directory of its own. */
export interface CliProject extends AsyncDisposable {
  readonly dir: string;
  readonly stateDir: string;
  /** The whole command line in the process of the test, which saves most of the time of a short command. */
  corral(args: readonly string[], options?: StartOptions): Promise<Outcome>;
  /** The built program in a process of its own, for what only a process shows. */
  built(args: readonly string[], options?: StartOptions): Promise<Outcome>;
  /** Its containers, as `corral ps` lists them, which a test asks for often. */
  cells(): Promise<readonly CellInfo[]>;
  /** That process, for those that stop it on its way. */
  start(args: readonly string[], options?: StartOptions): { child: ChildProcess; ended: Promise<Outcome> };
}

/** `files` by path; `yaml` is `corral.yaml`, null for none. Workers are given as their front matter, JSON being YAML. */
export async function cliProject(spec: {
  readonly yaml: unknown;
  readonly workers: Readonly<Record<string, unknown>>;
  readonly files?: Readonly<Record<string, string>>;
  readonly folders?: readonly string[];
}): Promise<CliProject> {
  const dir = await mkdtemp(join(tmpdir(), "corral-cli-"));
  const stateDir = await mkdtemp(join(tmpdir(), "corral-state-"));
  await giveGate(stateDir);
  const write = (path: string, text: string): void => {
    mkdirSync(dirname(join(dir, path)), { recursive: true });
    writeFileSync(join(dir, path), text);
  };
  if (spec.yaml !== null) write("corral.yaml", JSON.stringify(spec.yaml));
  for (const [name, worker] of Object.entries(spec.workers)) {
    write(`workers/${name}.worker`, `---\n${JSON.stringify(worker)}\n---\n`);
  }
  for (const folder of spec.folders ?? []) {
    mkdirSync(join(dir, folder), { recursive: true });
    if (process.getuid?.() === 0) chownSync(join(dir, folder), WORKER_UID, WORKER_UID);
  }
  for (const [path, text] of Object.entries(spec.files ?? {})) write(path, text);

  const running = new Map<ChildProcess, Promise<Outcome>>();
  const start: CliProject["start"] = (args, { stdin = "", env = {}, cwd = "." } = {}) => {
    const child = spawn(process.execPath, [PROGRAM, ...args], {
      cwd: join(dir, cwd),
      env: { ...process.env, NO_COLOR: "1", CORRAL_STATE_DIR: stateDir, ...env },
      stdio: "pipe",
    });
    child.stdin.on("error", () => {});
    if (stdin !== null) child.stdin.end(stdin);
    const ended = outcomeOf(child);
    running.set(child, ended);
    return { child, ended: ended.finally(() => running.delete(child)) };
  };
  return {
    dir,
    stateDir,
    start,
    corral: (args, { stdin = "", env = {}, cwd = "." } = {}) =>
      withinProcess(args, {
        stdin: String(stdin ?? ""),
        env: { ...process.env, NO_COLOR: "1", CORRAL_STATE_DIR: stateDir, ...env },
        cwd: join(dir, cwd),
      }),
    built: (args, options) => start(args, options).ended,
    cells: () => listCells({ stateDir, engineEnv: process.env }),
    async [Symbol.asyncDispose]() {
      // A test that failed in the middle has a process that is still on, and what that left behind.
      const left = [...running];
      for (const [child] of left) child.kill("SIGKILL");
      await Promise.allSettled(left.map(([, ended]) => ended));
      if (left.length > 0) await start(["reap"]).ended;
      rmSync(dir, { recursive: true, force: true });
      // What watches for the death of a killed process may be at work here for some moments.
      rmSync(stateDir, { recursive: true, force: true, maxRetries: 5, retryDelay: 200 });
    },
  };
}

async function outcomeOf(child: ChildProcess): Promise<Outcome> {
  const { promise, resolve, reject } = Promise.withResolvers<Outcome>();
  const text = { stdout: "", stderr: "" };
  for (const stream of ["stdout", "stderr"] as const) {
    child[stream]?.setEncoding("utf8").on("data", (chunk: string) => {
      text[stream] += chunk;
    });
  }
  child.once("error", reject);
  child.once("close", (status, signal) => resolve({ status, signal, ...text }));
  return await promise;
}

/** A shell command for a worker. */
export const sh = (script: string): string[] => ["sh", "-c", script];
