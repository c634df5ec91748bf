import fs from "node:fs";
import { join } from "node:path";
import type { Writable } from "node:stream";
import { Disposables } from "../../platform/disposables.ts";
import { within } from "../../platform/within.ts";
import type { Violation } from "../../sandbox/violation.ts";
import { present } from "../../text/present.ts";
import type { CommandPipes, PipeNames } from "../commands/command-pipes.ts";
import { heldBytes } from "../disk/unnamed-files.ts";
import { GateStreams, pour, reportWithin } from "../gate/gate-streams.ts";
import { type GateReport, GO, gateSecrets, parseGateReport, secretLines } from "../gate/report.ts";
import { ownNamespaces, verifyCell } from "../gate/verify.ts";
import { kernelText, socketBytes, UsageSampler } from "../kernel/control-group.ts";
import { CellNetwork, enterAsOwner, enterFromOutside } from "../network/listen-in.ts";
import { type Enforcement, gateOf, LOCAL_NAMES, type Plan, type PlannedUser } from "../plan/plan.ts";
import { refusalFrom } from "../plan/plan-for.ts";
import type { Cell, CellExit } from "../port/cell.ts";
import { EngineTrouble, type Start, type StartRequest } from "../port/driver.ts";
import { misplacedMounts } from "../sources/pin.ts";
import {
  type BwrapPrograms,
  bwrapWords,
  CORRAL_CALL,
  cellFiles,
  type HostEntry,
  notForBwrap,
  sharedBy,
  startText,
} from "./cell-words.ts";
import { type CellGroup, type Delegated, makeGroup } from "./groups.ts";
import type { BwrapLaunchers } from "./launcher.ts";
import { type BwrapFolder, type BwrapLedger, killStarters, RunNameTaken, removeFolder } from "./ledger.ts";

export interface BwrapOptions {
  readonly ledger: BwrapLedger;
  /** Streams of cells: a program can open its own by the name `/dev/stdout`, which it cannot if they are sockets. */
  readonly pipes: PipeNames;
  /** Whose processes the cells are: Corral's own user. */
  readonly user: PlannedUser;
  readonly programs: BwrapPrograms;
  readonly launchers: BwrapLaunchers;
  readonly entries: readonly HostEntry[];
  /** In which its cells get control groups, or why they cannot. */
  readonly groups: Delegated | { readonly why: string };
  /** The kernel's filter of a plan's cell. */
  readonly filterOf: (plan: Plan) => Buffer;
}

/** How often a cell is made before its start has failed. */
const MAX_ATTEMPTS = 3;
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
  options: BwrapOptions,
  { plan, pins, signal, secrets = new Map(), onOutput }: StartRequest,
  input: "at-once" | "lasting",
  made: Disposables,
): Promise<BwrapStart> {
  const { ledger, user, groups } = options;
  signal.throwIfAborted();
  // bubblewrap would make a missing place for a mount inside of another.
  const misplaced = misplacedMounts(plan.mounts, pins);
  if (misplaced.length > 0) return refused(...misplaced);
  const folder = ledger.make(plan);
  let starter: BwrapProcess | null = null;
  made.defer(() => removeFolder(folder.dir, starter?.hasEndedItself()));
  const group = "why" in groups ? null : makeGroup(groups, folder, plan, user);
  const bwrap = new BwrapProcess(options, { plan, folder, group, pipes: await options.pipes.take() }, onOutput);
  starter = bwrap;
  made.defer(() => bwrap.end());
  const report = parseGateReport(await reportWithin(bwrap.streams.report, signal));
  const reported = bwrap.begun();
  const { seen, missing } = differences(reported, plan, report, user, group);
  const { enforcement, violations } = verifyCell(plan, seen, "bwrap");
  const refusals: Violation[] = [...violations, ...misplacedMounts(plan.mounts, pins)];
  if (missing.length > 0) refusals.push({ code: "ENFORCEMENT_MISSING", missing });
  if (refusals.length > 0) return refused(...refusals);
  const ahead = secretLines(gateSecrets(plan), secrets);
  const enter = process.getuid?.() === 0 ? enterFromOutside : enterAsOwner;
  const network = made.use(new CellNetwork((places) => enter(reported.pid, places)));
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
    network,
    namespace: report.namespaces.get("/proc/self/ns/net") ?? "",
    made,
  });
  return { ok: true, cell, write: (text) => void bwrap.stdin.write(text) };
}

interface BwrapProcessRequest {
  readonly plan: Plan;
  readonly folder: BwrapFolder;
  readonly group: CellGroup | null;
  readonly pipes: CommandPipes;
}

/** The process that becomes bubblewrap, and stays for as long as its cell. A launcher starts it. */
class BwrapProcess {
  readonly streams: GateStreams;
  readonly stdin: Writable;
  /** Its exit code, if it has ended by itself. */
  readonly ended: Promise<number | null>;
  readonly #folder: BwrapFolder;
  readonly #names: PipeNames;
  readonly #pipes: CommandPipes;
  /** Beside the pipes, and reused as they are: some file systems take long to make a file when many have just been removed. */
  readonly #files: { readonly words: string; readonly status: string; readonly start: string };
  #hasEnded = false;
  #hasEndedItself = false;

  constructor(
    { ledger, pipes: names, launchers, programs, entries, filterOf }: BwrapOptions,
    { plan, folder, group, pipes }: BwrapProcessRequest,
    onOutput: StartRequest["onOutput"],
  ) {
    this.#folder = folder;
    this.#pipes = pipes;
    this.#names = names;
    this.streams = new GateStreams(onOutput);
    const beside = (kind: string): string => join(ledger.pipesDir, `${pipes.name}.${kind}`);
    this.#files = { words: beside("words"), status: beside("status"), start: beside("start") };
    const given = {
      ...this.#files,
      ...{ plan, programs, entries, gate: gateOf(plan), groups: group?.entries ?? [] },
      ...{ filter: ledger.keep(filterOf(plan), folder), call: ledger.keep(CORRAL_CALL, folder) },
      streams: { stdin: pipes.pathOf("in"), stdout: pipes.pathOf("out"), stderr: pipes.pathOf("err") },
    };
    // What the file of an earlier cell said.
    ledger.write(given.status, "");
    ledger.write(given.words, bwrapWords(given));
    ledger.write(given.start, startText(given));
    const places = { cells: ledger.cellsDir, starts: ledger.pipesDir };
    const launcher = launchers.take(sharedBy(given, places, cellFiles(plan, LOCAL_NAMES)));
    this.stdin = pipes.writer();
    // It may end before all of its input is read.
    this.stdin.on("error", () => {});
    const readers = { stdout: pipes.reader("out"), stderr: pipes.reader("err") };
    const use = launcher.start(folder.run, pipes.name, (why) => {
      if (!this.streams.hasBegun) this.streams.add("stderr", Buffer.from(why));
      pipes.opened();
    });
    readers.stdout.once("data", () => pipes.opened());
    // bubblewrap has them too, and outlives all of its cell.
    const closed = Object.entries(readers).map(([name, reader]) => {
      reader.on("data", (chunk: Buffer) => this.streams.add(name as keyof typeof readers, chunk)).on("error", () => {});
      return new Promise((done) => reader.once("close", done));
    });
    this.ended = Promise.all(closed).then(() => {
      use[Symbol.dispose]();
      this.#hasEnded = true;
      this.streams.end();
      const code = this.#said()["exit-code"];
      // One that fails before may leave a process that waits for it.
      this.#hasEndedItself = typeof code === "number" && this.streams.hasBegun;
      return typeof code === "number" ? code : null;
    });
    this.ended.catch(() => {});
  }

  /** What bubblewrap says of the cell when it has made it, which is before the cell's own report. */
  begun(): Reported {
    const { "child-pid": pid, ...namespaces } = this.#said();
    if (typeof pid !== "number") throw new EngineTrouble("bubblewrap made no cell");
    return { pid, namespaces };
  }

  /** All of its words until now, which are in lines. */
  #said(): Record<string, unknown> {
    const lines = (kernelText(this.#files.status) ?? "").split("\n").filter((line) => line !== "");
    return Object.assign({}, ...lines.map((line) => JSON.parse(line)));
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
    this.#pipes.opened();
    // A bubblewrap that has just made the cell's first process does not end it yet, and that one waits for it.
    for (let looks = 0; !this.#hasEnded; looks += 1) {
      if (looks === MAX_LOOKS) throw new EngineTrouble("bubblewrap does not end");
      killStarters(this.#folder.dir);
      await within(this.ended, PAUSE_MS);
    }
    // A pipe that is open somewhere keeps what no process has read.
    if (!this.stdin.closed) await new Promise((closed) => this.stdin.once("close", closed));
    if (this.#hasEndedItself) return this.#names.reuse(this.#pipes);
    this.#pipes.letGo();
    for (const file of Object.values(this.#files)) fs.rmSync(file, { force: true });
  }
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
  readonly network: CellNetwork;
  /** The number of its network namespace, as the gate reported it. */
  readonly namespace: string;
  readonly made: Disposables;
}

/** A verified cell whose worker waits behind the gate. */
function bwrapCell(parts: BwrapCellParts): Cell {
  const { folder, bwrap, pid, group, enforcement, ahead, isLasting, network, namespace, made } = parts;
  const sampler = new UsageSampler(() => ({ by: "files", read: () => group?.usage() ?? null }));
  let killed = false;
  let removal: Promise<void> | null = null;
  const processes = `/proc/${pid}/ns/pid`;
  const own = fs.readlinkSync(processes);
  const isAlive = (): boolean => !bwrap.hasEnded() && linkOf(processes) === own;
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
    async listen(places, accept) {
      if (!isAlive()) throw new EngineTrouble("the cell has ended, so nothing can listen in its network");
      return await network.listen(namespace, places, accept);
    },
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
    const code = await bwrap.ended;
    sampler.stop();
    sampler.add(group?.usage() ?? null);
    const kills = group?.oomKills() ?? 0;
    // The kernel may choose bubblewrap, which is in the group too.
    if (kills > 0 && (code === null || code === 137) && !killed()) return exited(137, true);
    if (code === null) return killed() ? exited(137) : { kind: "lost", reason: "bubblewrap was ended by a signal" };
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

/** What bubblewrap says of a cell: its first process as this machine sees it, and the numbers of its namespaces, as `pid-namespace`. */
interface Reported {
  readonly pid: number;
  readonly namespaces: Readonly<Record<string, unknown>>;
}

/** What a process cannot gain back, as the kernel shows it of the first one. */
const LASTING = ["NoNewPrivs", "Seccomp", "CapInh", "CapPrm", "CapEff", "CapBnd", "CapAmb"];
const NAMESPACES = ["mnt", "pid", "net", "ipc", "uts"];

/**
 * What the kernel shows of the cell from outside, in place of what its gate has said of that; and where the two differ, or the cell is not what
 * only the outside can see: its user is `outer`, by another number, and its namespaces are its own.
 */
function differences(
  { pid, namespaces }: Reported,
  { user }: Plan,
  report: GateReport,
  outer: PlannedUser,
  group: CellGroup | null,
): { readonly seen: GateReport; readonly missing: readonly string[] } {
  const sections = ["mountinfo", "status", "limits"].map((name) => [name, kernelText(`/proc/${pid}/${name}`)] as const);
  const outside = parseGateReport(
    sections.map(([name, text]) => `==> /proc/${pid}/${name} <==\n${text ?? ""}`).join("\n"),
  );
  const missing: string[] = [];
  const mustBe = (what: string, planned: string, found: string): void => {
    if (planned !== found) missing.push(`${what}: planned ${planned}, found ${found}`);
  };
  const me = String(outer.uid);
  mustBe("users", `${user.uid} ${me} 1`, wordsIn(`/proc/${pid}/uid_map`));
  mustBe("groups", `${user.gid} ${outer.gid} 1`, wordsIn(`/proc/${pid}/gid_map`));
  mustBe("user outside", [me, me, me, me].join(" "), outside.status.get("Uid")?.split(/\s+/).join(" ") ?? "unknown");
  mustBe("first process", "1", outside.status.get("NSpid")?.split(/\s+/).at(-1) ?? "unknown");
  for (const name of LASTING)
    mustBe(`${name} from outside`, report.status.get(name) ?? "", outside.status.get(name) ?? "unknown");
  if (JSON.stringify(outside.mounts) !== JSON.stringify(report.mounts))
    missing.push("mounts: those that the cell reports are not those that the kernel shows from outside");
  const own = ownNamespaces();
  for (const kind of NAMESPACES) {
    const number = namespaces[`${kind}-namespace`];
    if (typeof number !== "number" || own[kind] === `${kind}:[${number}]`)
      missing.push(`namespace ${kind}: planned its own, found ${number === undefined ? "unknown" : "the host's"}`);
  }
  mustBe("namespace net", String(namespaces["net-namespace"]), report.namespaces.get("/proc/self/ns/net") ?? "unknown");
  if (group !== null && !group.has(pid)) missing.push("control group: planned its own, found another");
  const cgroup = group?.limits() ?? report.cgroup;
  const status = new Map([...report.status, ...LASTING.map((name) => [name, outside.status.get(name) ?? ""] as const)]);
  return { seen: { ...report, mounts: outside.mounts, status, cgroup }, missing };
}

function wordsIn(file: string): string {
  return (kernelText(file) ?? "unknown").trim().split(/\s+/).join(" ");
}
