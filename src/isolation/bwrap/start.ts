import { type ChildProcess, spawn } from "node:child_process";
import fs from "node:fs";
import { join } from "node:path";
import type { Readable, Writable } from "node:stream";
import { SYSTEM_ENV } from "../../files/host/system-program.ts";
import { Disposables } from "../../platform/disposables.ts";
import { within } from "../../platform/within.ts";
import type { Violation } from "../../sandbox/violation.ts";
import { present } from "../../text/present.ts";
import type { CommandPipes, PipeNames } from "../commands/command-pipes.ts";
import { heldBytes } from "../disk/unnamed-files.ts";
import { GateStreams, pour, reportWithin } from "../gate/gate-streams.ts";
import { GO, gateSecrets, parseGateReport, secretLines } from "../gate/report.ts";
import { verifyCell } from "../gate/verify.ts";
import { kernelText, socketBytes, UsageSampler } from "../kernel/control-group.ts";
import { type Enforcement, gateOf, LOCAL_NAMES, type Plan, type PlannedUser } from "../plan/plan.ts";
import { refusalFrom } from "../plan/plan-for.ts";
import type { Cell, CellExit } from "../port/cell.ts";
import { EngineTrouble, type Start, type StartRequest } from "../port/driver.ts";
import { misplacedMounts } from "../sources/pin.ts";
import {
  type BwrapPrograms,
  bwrapWords,
  type CellWords,
  CORRAL_CALL,
  cellFiles,
  DESCRIPTORS,
  type HostEntry,
  notForBwrap,
  startWords,
} from "./cell-words.ts";
import { type CellGroup, type Delegated, makeGroup } from "./groups.ts";
import { type BwrapFolder, type BwrapLedger, killStarters, RunNameTaken, removeFolder } from "./ledger.ts";
import { differences, type Reported } from "./outside.ts";

export interface BwrapOptions {
  readonly ledger: BwrapLedger;
  /** Streams of cells: a program can open its own by the name `/dev/stdout`, which it cannot if they are sockets. */
  readonly pipes: PipeNames;
  /** Whose processes the cells are: Corral's own user. */
  readonly user: PlannedUser;
  readonly programs: BwrapPrograms;
  readonly entries: readonly HostEntry[];
  /** In which its cells get control groups, or why they cannot. */
  readonly groups: Delegated | { readonly why: string };
  /** The kernel's filter of a plan's cell. */
  readonly filterOf: (plan: Plan) => Buffer;
}

/** How often a cell is made before its start has failed. */
const MAX_ATTEMPTS = 3;
/** How long output may be on its way when a cell has ended. */
const END_MS = 60_000;
/** How often Corral looks whether an ended one has gone, and how long it waits between. */
const MAX_LOOKS = 600;
const PAUSE_MS = 25;

/** The parts of a verified cell, from which each kind of cell is made. */
export type BwrapStart =
  | { readonly ok: true; readonly cell: Cell; write(text: string): void }
  | Extract<Start, { ok: false }>;

/** Nothing of the worker has run before its cell is verified. So a start that failed is undone and made again, whatever failed. */
export async function startBwrapCell(
  options: BwrapOptions,
  request: StartRequest,
  input: "at-once" | "lasting",
): Promise<BwrapStart> {
  const { plan, signal } = request;
  const reasons = notForBwrap(plan, options.user, options.groups);
  if (reasons.length > 0)
    return refused({
      code: "ENFORCEMENT_MISSING",
      missing: reasons.map((reason) => `a cell of bubblewrap: ${reason}`),
    });
  for (let attempt = 1; ; attempt += 1) {
    const made = new Disposables();
    try {
      const started = await startOnce(options, request, input, made);
      if (!started.ok) await made[Symbol.asyncDispose]();
      return started;
    } catch (error) {
      await made[Symbol.asyncDispose]();
      signal.throwIfAborted();
      const violation = refusalFrom((error as Error).message, plan);
      if (violation !== null) return refused(violation);
      if (attempt === MAX_ATTEMPTS || error instanceof RunNameTaken)
        throw error instanceof EngineTrouble ? error : new EngineTrouble((error as Error).message, { cause: error });
    }
  }
}

function refused(...violations: Violation[]): BwrapStart {
  return { ok: false, violations };
}

async function startOnce(
  { ledger, pipes, user, programs, entries, groups, filterOf }: BwrapOptions,
  { plan, pins, signal, secrets = new Map(), onOutput }: StartRequest,
  input: "at-once" | "lasting",
  made: Disposables,
): Promise<BwrapStart> {
  signal.throwIfAborted();
  // bubblewrap would make a missing place for a mount inside of another.
  const misplaced = misplacedMounts(plan.mounts, pins);
  if (misplaced.length > 0) return refused(...misplaced);
  const folder = ledger.make(plan);
  let starter: BwrapProcess | null = null;
  made.defer(() => removeFolder(folder.dir, starter?.hasEndedItself()));
  const group = "why" in groups ? null : makeGroup(groups, folder, plan, user);
  const files = cellFiles(plan, LOCAL_NAMES);
  const places = { gate: gateOf(plan), groups: group?.entries ?? [], memory: folder.memory };
  const given: CellWords = { plan, programs, entries, files, ...places };
  const parts = { given, ledger, folder, user, pipes: await pipes.take(), filter: filterOf(plan) };
  const bwrap = new BwrapProcess(parts, onOutput);
  starter = bwrap;
  made.defer(() => bwrap.end());
  const report = parseGateReport(await reportWithin(bwrap.streams.report, signal));
  const reported = await bwrap.reported();
  const { seen, missing } = differences(reported, plan, report, user, group);
  const { enforcement, violations } = verifyCell(plan, seen, "bwrap");
  const refusals: Violation[] = [...violations, ...misplacedMounts(plan.mounts, pins)];
  if (missing.length > 0) refusals.push({ code: "ENFORCEMENT_MISSING", missing });
  if (refusals.length > 0) return refused(...refusals);
  const ahead = secretLines(gateSecrets(plan), secrets);
  const cell = bwrapCell({
    folder,
    bwrap,
    pid: reported.pid,
    group,
    enforcement: {
      ...enforcement,
      ...present({ socketMemory: group?.boundSockets(socketBytes(plan.limits.memoryBytes)) }),
    },
    ahead,
    isLasting: input === "lasting",
    made,
  });
  return { ok: true, cell, write: (text) => void bwrap.stdin.write(text) };
}

interface BwrapProcessRequest extends Pick<BwrapOptions, "ledger" | "user"> {
  readonly given: CellWords;
  readonly folder: BwrapFolder;
  readonly pipes: CommandPipes;
  readonly filter: Buffer;
}

/** The process that becomes bubblewrap, and stays for as long as its cell. */
class BwrapProcess {
  readonly streams: GateStreams;
  readonly stdin: Writable;
  readonly ended: Promise<{ code: number | null; signal: NodeJS.Signals | null }>;
  readonly #child: ChildProcess;
  readonly #dir: string;
  readonly #status: Promise<string>;
  #hasEnded = false;
  #hasEndedItself = false;

  constructor(
    { given, ledger, folder: { dir }, user, pipes, filter }: BwrapProcessRequest,
    onOutput: StartRequest["onOutput"],
  ) {
    const { program, args } = startWords(given);
    this.#dir = dir;
    const isOwn = user.uid === process.getuid?.();
    this.streams = new GateStreams(onOutput);
    const closing: (() => void)[] = [];
    using _ = { [Symbol.dispose]: () => closing.forEach((close) => void close()) };
    const held = (descriptor: number): number => {
      closing.push(() => fs.closeSync(descriptor));
      return descriptor;
    };
    const words = join(dir, "words");
    fs.writeFileSync(words, bwrapWords(given), { mode: 0o600 });
    this.stdin = pipes.writer();
    const readers = { stdout: pipes.reader("out"), stderr: pipes.reader("err") };
    // Their names are gone before the cell is made.
    closing.push(() => pipes.letGo());
    const stdio = [
      ...[held(pipes.inside("in")), held(pipes.inside("out")), held(pipes.inside("err"))],
      ...([held(fs.openSync(words, "r")), held(ledger.open(filter)), "pipe"] as const),
      held(ledger.open(CORRAL_CALL)),
    ];
    this.#child = spawn(program, args, { cwd: dir, env: SYSTEM_ENV, stdio, ...(isOwn ? {} : user) });
    const closed = Object.entries(readers).map(([name, reader]) => {
      reader.on("data", (chunk: Buffer) => this.streams.add(name as keyof typeof readers, chunk)).on("error", () => {});
      return new Promise((done) => reader.once("close", done));
    });
    // It may end before all of its input is read.
    this.stdin.on("error", () => {});
    this.#status = firstLine((this.#child.stdio as unknown as readonly Readable[])[DESCRIPTORS.status] as Readable);
    this.#status.catch(() => {});
    const { promise, resolve, reject } = Promise.withResolvers<Awaited<BwrapProcess["ended"]>>();
    this.#child.once("exit", (code) => {
      this.#hasEnded = true;
      // One that fails before may leave a process that waits for it.
      this.#hasEndedItself = code !== null && this.streams.hasBegun;
    });
    this.#child.once("error", reject).once("close", (code, signal) => resolve({ code, signal }));
    this.ended = promise.then(async (end) => {
      if ((await within(Promise.all(closed), END_MS)) === null) throw new EngineTrouble(UNCLOSED);
      return end;
    });
    this.ended.then(
      () => this.streams.end(),
      () => this.streams.end(),
    );
  }

  /** What bubblewrap says of the cell when it has made it. */
  async reported(): Promise<Reported> {
    const { "child-pid": pid, ...namespaces } = JSON.parse(await this.#status);
    return { pid, namespaces };
  }

  hasEnded(): boolean {
    return this.#hasEnded;
  }

  /** After the first process of its cell, and so after all of it. */
  hasEndedItself(): boolean {
    return this.#hasEndedItself;
  }

  /** Ends the cell too: its first process does not outlive bubblewrap. */
  async end(): Promise<void> {
    this.streams.close();
    this.stdin.destroy();
    if (!this.#hasEnded) this.#child.kill("SIGKILL");
    const end = this.ended.then(
      () => true,
      () => true,
    );
    // A bubblewrap that has just made the cell's first process does not end it yet, and that one waits for it.
    for (let looks = 0; (await within(end, PAUSE_MS)) === null; looks += 1) {
      if (looks === MAX_LOOKS) throw new EngineTrouble("bubblewrap does not end");
      killStarters(this.#dir);
    }
  }
}

const UNCLOSED = "the streams of a cell that has ended do not end";

/** bubblewrap writes one when the cell is made, and another when it has ended. */
async function firstLine(stream: Readable): Promise<string> {
  let text = "";
  const { promise, resolve, reject } = Promise.withResolvers<string>();
  stream.on("data", (chunk: Buffer) => {
    if (text.includes("\n")) return;
    text += chunk.toString("latin1");
    if (text.includes("\n")) resolve(text.slice(0, text.indexOf("\n")));
  });
  stream.once("close", () => reject(new EngineTrouble("bubblewrap made no cell")));
  return await promise;
}

interface BwrapCellParts {
  readonly folder: BwrapFolder;
  readonly bwrap: BwrapProcess;
  /** Of its first process, as this machine sees it. */
  readonly pid: number;
  readonly group: CellGroup | null;
  readonly enforcement: Enforcement;
  /** What the gate reads before the worker's input. */
  readonly ahead: Buffer;
  readonly isLasting: boolean;
  readonly made: Disposables;
}

/** A verified cell whose worker waits behind the gate. */
function bwrapCell({ folder, bwrap, pid, group, enforcement, ahead, isLasting, made }: BwrapCellParts): Cell {
  const sampler = new UsageSampler(() => ({ by: "files", read: () => group?.usage() ?? null }));
  let killed = false;
  let removal: Promise<void> | null = null;
  const namespace = `/proc/${pid}/ns/pid`;
  const own = fs.readlinkSync(namespace);
  const isAlive = (): boolean => !bwrap.hasEnded() && linkOf(namespace) === own;
  return {
    id: folder.id,
    enforcement,
    exit: exitOf(bwrap, group, sampler, () => killed),
    release(input, rest) {
      if (group !== null) sampler.begin();
      bwrap.streams.release();
      const first = Buffer.concat([Buffer.from(GO), ahead, input]);
      if (rest !== undefined) pour(first, rest, bwrap.stdin);
      else if (isLasting) bwrap.stdin.write(first);
      else bwrap.stdin.end(first);
    },
    listen: async () => ({ ok: false, reason: "no ordinary user may enter the network of a cell" }),
    async unnamedBytes() {
      // The first process is Corral's own, which no one may look into.
      const all = processesIn(own).filter((each) => each !== pid);
      return await heldBytes(all, async (each) => linkOf(`/proc/${each}/ns/pid`) === own);
    },
    async kill(signal) {
      killed = true;
      if (!isAlive()) return;
      if (signal === "SIGKILL") return signalled(pid, signal);
      for (const child of childrenOf(pid)) signalled(child, signal);
    },
    async [Symbol.asyncDispose]() {
      removal ??= made[Symbol.asyncDispose]();
      await removal;
    },
  };
}

/** Whatever is not known for certain is lost. */
async function exitOf(
  bwrap: BwrapProcess,
  group: CellGroup | null,
  sampler: UsageSampler,
  killed: () => boolean,
): Promise<CellExit> {
  const exited = (code: number, outOfMemory = false): CellExit => ({
    ...{ kind: "exited", code, outOfMemory },
    usage: sampler.last(),
  });
  try {
    const { code, signal } = await bwrap.ended;
    sampler.stop();
    sampler.add(group?.usage() ?? null);
    const kills = group?.oomKills() ?? 0;
    // The kernel may choose bubblewrap, which is in the group too.
    if (kills > 0 && (code === null || code === 137) && !killed()) return exited(137, true);
    if (code === null) return killed() ? exited(137) : { kind: "lost", reason: `bubblewrap was ended by ${signal}` };
    if (!bwrap.streams.hasBegun && !killed()) return { kind: "lost", reason: "the cell ended before its worker began" };
    return exited(code);
  } catch (error) {
    return { kind: "lost", reason: (error as Error).message };
  }
}

function linkOf(path: string): string | null {
  try {
    return fs.readlinkSync(path);
  } catch {
    return null;
  }
}

function processesIn(namespace: string): number[] {
  const all = fs.readdirSync("/proc").map(Number);
  return all.filter((pid) => Number.isInteger(pid) && linkOf(`/proc/${pid}/ns/pid`) === namespace);
}

function childrenOf(pid: number): number[] {
  const text = kernelText(`/proc/${pid}/task/${pid}/children`) ?? "";
  return text
    .split(" ")
    .filter((each) => /^\d+$/.test(each))
    .map(Number);
}

function signalled(pid: number, name: NodeJS.Signals): void {
  try {
    process.kill(pid, name);
  } catch {
    // It has ended.
  }
}
