import { existsSync } from "node:fs";
import { realpath } from "node:fs/promises";
import { tmpdir } from "node:os";
import { resolve } from "node:path";
import { stringify } from "yaml";
import { loadPolicy } from "../../declarations/policy/policy.ts";
import { loadDeclaredProject } from "../../declarations/project.ts";
import { DeclarationError } from "../../declarations/yaml/problem.ts";
import { NOT_LIMITED } from "../../isolation/seatbelt/profile.ts";
import { MACOS_PROGRAM, runInSeatbelt } from "../../isolation/seatbelt/start.ts";
import { RequestError, refusedError } from "../../operations/request-error.ts";
import { written } from "../../platform/byte-streams.ts";
import { SchemaChecks } from "../../run/model/job.ts";
import { permissionOf, rootSandbox } from "../../run/model/permission.ts";
import { describeAll } from "../../run/model/result.ts";
import { governingMount } from "../../sandbox/access.ts";
import type { Sandbox } from "../../sandbox/sandbox.ts";
import type { VirtualPath } from "../../sandbox/virtual-path.ts";
import { stateDirFrom } from "../../state/state-dir.ts";
import { present } from "../../text/present.ts";
import { printableLine } from "../../text/visible.ts";
import { type ImpliedOptions, variablesIn } from "../declared/given-options.ts";
import { UsageError } from "../terminal/arguments.ts";
import { EXIT, exitStatusOf, say, stoppable, type Terminal } from "../terminal/terminal.ts";
import { workerTextTo } from "../terminal/worker-text.ts";

export interface SeatbeltOptions extends ImpliedOptions {
  readonly words: readonly string[];
  readonly raw?: boolean;
}

/** All others need a container, a record or a person in the middle. */
const TAKEN: ReadonlySet<string> = new Set(
  "words project driver policy ro rw apply env workdir timeout output raw".split(" "),
);

const HERE = {
  platform: process.platform,
  program: MACOS_PROGRAM,
  temporary: tmpdir(),
  isRoot: process.getuid?.() === 0,
};

/**
 * `corral run --driver seatbelt`: a command without a project and without a container, as a process in macOS's Seatbelt. It is no run: nothing is
 * recorded, and what it writes below `--rw` is written at once. The exit status is the command's, or as of other runs.
 */
export async function runOnMac(
  worker: string | undefined,
  options: SeatbeltOptions,
  terminal: Terminal,
  machine: typeof HERE = HERE,
): Promise<number> {
  if (machine.platform !== "darwin" || !existsSync(machine.program))
    throw new RequestError(
      "WORKER_REFUSED",
      "",
      `--driver seatbelt needs ${MACOS_PROGRAM} of macOS, which this machine has not; use auto`,
    );
  refuseOptions(worker, options);
  const name = "command";
  const sandbox = await sandboxOf(name, options, terminal);
  const stateDir = stateDirFrom(terminal.env);
  const cwd = await startOf(options, sandbox, terminal);
  say(terminal, `corral: Seatbelt, no container: ${NOT_LIMITED}`);
  using stop = stoppable(terminal, (line) => say(terminal, line), { whileRead: true });
  const texts = { stdout: workerTextTo(terminal.stdout, options), stderr: workerTextTo(terminal.stderr, options) };
  const { timeoutMs = 0, outputBytes = 0 } = sandbox.limits;
  const end = await runInSeatbelt(
    {
      sandbox,
      command: options.words,
      env: variablesIn(options, terminal.env),
      cwd,
      own: existsSync(stateDir) ? [stateDir] : [],
      stdin: terminal.stdin.isTTY ? "ignore" : "inherit",
      timeoutMs,
      outputBytes,
      signal: stop.signal,
      onOutput: async (stream, bytes) => await written(terminal[stream], texts[stream].piece(bytes)),
    },
    machine,
  );
  for (const stream of ["stdout", "stderr"] as const) terminal[stream].write(texts[stream].end());
  if (!end.ok) throw new RequestError("WORKER_REFUSED", name, `Seatbelt cannot keep this: ${end.missing.join("\n")}`);
  return stop.isUnread() ? EXIT.unread : exitStatusOf(end);
}

function refuseOptions(worker: string | undefined, options: SeatbeltOptions): void {
  if (worker !== undefined)
    throw new UsageError(
      `--driver seatbelt runs a command without a project; a worker such as ${worker} has a container`,
    );
  const isGiven = (value: unknown): boolean =>
    value !== undefined && value !== false && !(Array.isArray(value) && value.length === 0);
  const foreign = Object.entries(options).find(([key, value]) => !TAKEN.has(key) && isGiven(value));
  if (foreign !== undefined) {
    const option = `--${foreign[0].replaceAll(/[A-Z]/g, (letter) => `-${letter.toLowerCase()}`)}`;
    throw new UsageError(`${option} cannot be had without a container (--driver seatbelt)`);
  }
  if ((options.rw ?? []).length > 0 && !options.apply)
    throw new UsageError(
      "without a container nothing is kept apart: --rw needs --apply, and what changes there is changed at once",
    );
}

/** As a project that has these paths, each at its own place, and one worker that gets all of them. */
async function sandboxOf(name: string, options: SeatbeltOptions, { cwd, env }: Terminal): Promise<Sandbox> {
  const { ro = [], rw = [], timeout, output, policy = "untrusted" } = options;
  const given = [...ro.map((raw) => ["ro", raw] as const), ...rw.map((raw) => ["rw", raw] as const)];
  const approval = { write: "pre_approved", delete: "pre_approved" };
  const paths: Record<string, object> = {};
  for (const [index, [mode, raw]] of given.entries()) {
    const host = await realpath(resolve(cwd, raw)).catch(() => null);
    if (host === null) throw new UsageError(`--${mode} ${printableLine(raw, 200)}: there is no such file or folder`);
    // As it was typed: a link on the way that an earlier command may have made is refused.
    paths[`path${index}`] = { root: resolve(cwd, raw), at: host, mode, ...(mode === "rw" && { approval }) };
  }
  const corral = stringify({ version: 1, policy, sandbox: { paths } });
  const limits = present({ timeout, output });
  const text = stringify({ image: "host", command: ["true"], limits, sandbox: { inherit: true } });
  const texts = { corral, workers: new Map([[name, `---\n${text}---\n`]]) };
  const project = await loadDeclaredProject(cwd, texts, env).catch((error: unknown) => {
    if (!(error instanceof DeclarationError)) throw error;
    const told = error.problems.map(({ path, message }) => {
      const [mode, raw] = given[Number(/^sandbox\.paths\.path(\d+)/.exec(path)?.[1])] ?? [];
      return `--${mode === undefined ? path.replace("limits.", "") : `${mode} ${printableLine(raw ?? "", 200)}`}: ${message}`;
    });
    throw new UsageError(told.join("\ncorral: "));
  });
  const { dir, workers } = project;
  const policyNamed = async (asked: string) => await loadPolicy(asked, { dirs: [] });
  const declared = { project, policyNamed, schemas: new SchemaChecks() };
  const definition = workers.get(name);
  if (definition === undefined) throw new Error(`the project in ${dir} has no worker ${name}`);
  const derivation = await permissionOf(definition, await rootSandbox(declared, null), null, declared);
  if (derivation.ok) return derivation.sandbox;
  throw refusedError("WORKER_REFUSED", name, describeAll(derivation.violations));
}

/** Where the command starts: in the working directory if it sees that, else in its own home (null). */
async function startOf({ workdir }: SeatbeltOptions, sandbox: Sandbox, { cwd }: Terminal): Promise<string | null> {
  const place = await realpath(resolve(cwd, workdir ?? ".")).catch(() => "/");
  const isShown = governingMount(sandbox, place as VirtualPath) !== undefined;
  if (workdir !== undefined && !isShown)
    throw new UsageError(
      `--workdir ${printableLine(workdir, 200)}: the command does not see it; show it with --ro or --rw`,
    );
  return isShown ? place : null;
}
