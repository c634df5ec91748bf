import { spawn } from "node:child_process";
import { SnapshotStore } from "../../changes/layers/snapshot-store.ts";
import { nameFault } from "../../declarations/terms/names.ts";
import type { AnswerOf } from "../../operations/contract/table.ts";
import { shownSnapshot } from "../../run/session/session-snapshots.ts";
import { type HeldSession, heldSessions, holdSession } from "../../serve/held-session.ts";
import { openLog } from "../../serve/logging/log.ts";
import { projectPaths, stateDirFrom, statePaths } from "../../state/state-dir.ts";
import { present } from "../../text/present.ts";
import { printableLine } from "../../text/visible.ts";
import { ToolRefusal } from "../../tools/tool.ts";
import { type HoldOptions, idleTimes, portOf, projectFolder, UsageError } from "../terminal/arguments.ts";
import { EXIT, keepHeapSmall, printResult, say, stoppable, type Terminal } from "../terminal/terminal.ts";

/** The holder says in one line that the session is open, or why not. */
const MAX_LINE = 64 * 1024;

/** Starts a process that holds the session and stays. */
export async function startHolder(worker: string, options: HoldOptions, terminal: Terminal): Promise<number> {
  const { name = worker, idle, endAfter, policy, from, project, port: ports = [] } = options;
  const fault = nameFault(name);
  if (fault !== null) throw new UsageError(`--name ${printableLine(name, 80)}: a name ${fault}`);
  idleTimes(options);
  if ((await heldSessions(stateDirFrom(terminal.env))).some((one) => one.name === name))
    throw new UsageError(`there is a session ${name} already; choose another --name, or stop it`);
  const dir = await projectFolder(project, terminal);
  const given = Object.entries(present({ idle, "end-after": endAfter, policy, from })).flatMap(([option, value]) => [
    `--${option}`,
    value as string,
  ]);
  const named = ports.flatMap((port) => ["--port", String(portOf(port))]);
  const args = [process.argv[1] ?? "", "session", "hold", worker, "--project", dir, "--name", name, ...given, ...named];
  const child = spawn(process.execPath, [...process.execArgv, ...args], {
    cwd: terminal.cwd,
    env: terminal.env,
    detached: true,
    stdio: ["ignore", "pipe", "pipe"],
  });
  let [line, errors] = ["", ""];
  child.stderr.on("data", (chunk: Buffer) => {
    if (errors.length < MAX_LINE) errors += chunk.toString();
  });
  const code = await new Promise<number | null>((resolve, reject) => {
    child.once("error", reject).once("close", (status) => resolve(status ?? EXIT.engineTrouble));
    child.stdout.on("data", (chunk: Buffer) => {
      line += chunk.toString();
      if (line.includes("\n") || line.length > MAX_LINE) resolve(null);
    });
  });
  if (code !== null) {
    say(terminal, printableLines(errors) || `corral: the session ended while it was opened, with ${code}`);
    return code === 0 ? EXIT.engineTrouble : code;
  }
  child.stdout.destroy();
  child.stderr.destroy();
  child.unref();
  const held = JSON.parse(line) as HeldSession;
  printResult(terminal, options.json, held, () => held.name);
  return 0;
}

function printableLines(text: string): string {
  return text
    .trimEnd()
    .split("\n")
    .map((line) => printableLine(line, 2000))
    .join("\n");
}

/** Holds a session in this process, for {@link startHolder}. */
export async function holdVerb(worker: string, options: HoldOptions, terminal: Terminal): Promise<number> {
  const { name = worker, policy = null, from, project, port: ports = [] } = options;
  const { env, stdout, stderr } = terminal;
  keepHeapSmall();
  // The command that started it has ended: nobody reads what is said from then on.
  for (const stream of [stdout, stderr]) stream.on("error", () => {});
  using stop = stoppable(terminal, () => {});
  const log = openLog({ level: "silent", pretty: false, write: () => {} });
  const dir = await projectFolder(project, terminal);
  let isOpen = false;
  const request = {
    dir,
    worker,
    policy,
    ...present({ from }),
    ports: ports.map(portOf),
    name,
    idle: idleTimes(options),
    stateDir: stateDirFrom(env),
    env,
    log,
  };
  const emit: Parameters<typeof holdSession>[0]["emit"] = (event) => {
    if (event.type === "trouble" && !isOpen) say(terminal, `corral: ${event.detail}`);
  };
  const opened = (held: HeldSession): void => {
    isOpen = true;
    stdout.write(`${JSON.stringify(held)}\n`);
  };
  await holdSession({ ...request, emit }, stop.signal, opened).catch((error: unknown) => {
    if (error instanceof ToolRefusal) throw new UsageError(error.message, { cause: error });
    throw error;
  });
  return 0;
}

/** Of the project's sessions, also of those that have ended. */
export async function snapshotsHere(project: string, terminal: Terminal) {
  const stateDir = stateDirFrom(terminal.env);
  const dir = await projectFolder(project, terminal);
  const store = new SnapshotStore(projectPaths(stateDir, dir).snapshots, statePaths(stateDir).live);
  /** @throws UsageError */
  const find = async (wanted: string): Promise<AnswerOf<"snapshots.take">> =>
    await store.find(wanted).then(shownSnapshot, (error: Error) => {
      throw new UsageError(`${printableLine(error.message, 200)}; \`corral session snapshots\` lists them`, {
        cause: error,
      });
    });
  return {
    find,
    list: async () => (await store.list()).map(shownSnapshot),
    async remove(wanted: string): Promise<void> {
      const { id } = await find(wanted);
      await store.remove((one) => one.id === id);
    },
  };
}
