import { randomBytes } from "node:crypto";
import { availableParallelism } from "node:os";
import { join } from "node:path";
import PQueue from "p-queue";
import { within } from "../../platform/within.ts";
import { statePaths } from "../../state/state-dir.ts";
import {
  CELL_END_MS,
  knownProcess,
  releasedSession,
  SCRIPT_MS,
  SIGNAL_ALL_SCRIPT,
  signalArguments,
  startCommandCell,
  startServingCell,
} from "../commands/command-cell.ts";
import type { CommandServer } from "../commands/command-server.ts";
import { NameFileSet } from "../network/name-files.ts";
import { GATE_PATH, type Plan } from "../plan/plan.ts";
import type { ImageFacts } from "../plan/plan-for.ts";
import {
  type Cell,
  type CellUsageNow,
  type Exec,
  type ExecExit,
  type ExecRequest,
  KILLED,
  type ServingCell,
  type SessionCell,
} from "../port/cell.ts";
import { type CellInfo, type CellMaker, EngineTrouble, type Start, type StartRequest } from "../port/driver.ts";
import type { EngineGround } from "../port/images.ts";
import type { Maker } from "../port/labels.ts";
import { OciFilters } from "../seccomp/planned-profile.ts";
import { type CommandPlace, type RuncExit, runcExec } from "./cells/exec.ts";
import { Launchers } from "./cells/launchers.ts";
import { type StartOptions, startVerified } from "./cells/start.ts";
import {
  type Conditions,
  conditionsFor,
  type JudgedGround,
  type Probed,
  probeCell,
  probeConditions,
  rememberedProbe,
  rememberProbe,
} from "./ground/conditions.ts";
import { UnpackedImages } from "./ground/unpacked-images.ts";
import { reapRuncCells, recordedCells, usageOfCell } from "./ledger/reap-cells.ts";
import { notForCrun, notForRunc, type RuncOptions, type RuncPaths, runcPaths } from "./model/layout.ts";

export interface RuncRequest {
  readonly stateDir: string;
  readonly maker: Maker;
  /** As in `RuncOptions`. */
  readonly seccomp: string;
  readonly ground: EngineGround;
  readonly needs: ProbeNeeds;
  /** In the order in which they are tried: see `runtimesToTry`. */
  readonly runtimes: readonly string[];
}

/** What a probe needs. Both reject with the reason if it is missing. */
export interface ProbeNeeds {
  /** The image of the probe; null if the Engine does not have it. */
  image(): Promise<ImageFacts | null>;
  gate(): Promise<string>;
  /** Whether to make a first cell also if it is known what came of one. */
  readonly triesAgain: boolean;
}

/** `why`: for people, in one sentence. */
export type Usable =
  | { readonly ok: true; readonly cells: CellMaker; readonly why: string }
  | { readonly ok: false; readonly why: string };

/**
 * Cells of an OCI runtime for one state directory: of the first that can make a plan's cell. What dead processes left is found and removed
 * also where none can be made.
 */
export class Runc {
  readonly images: UnpackedImages;
  readonly #request: RuncRequest;
  readonly #paths: RuncPaths;
  readonly #runtimes: readonly TriedRuntime[];

  constructor(request: RuncRequest) {
    this.#request = request;
    const { stateDir, maker, ground, runtimes } = request;
    this.#paths = runcPaths(stateDir);
    const { images: dir, layers: layersDir } = this.#paths;
    this.images = new UnpackedImages({ dir, layersDir, ground, owner: maker.owner });
    this.#runtimes = runtimes.map((name) => new TriedRuntime(name, request, this.images));
  }

  /** Why such a plan is for the Engine; null if its cells can be made here. */
  async objection(plan: Plan): Promise<string | null> {
    const against = notForRunc(plan) ?? (await this.images.objection(plan.image.id));
    if (against !== null) return against;
    const found = await this.#first(plan);
    return found.ok ? null : found.why;
  }

  async isAtHand(plan: Plan): Promise<boolean> {
    return notForRunc(plan) !== null || (await this.images.isAtHand(plan.image.id));
  }

  close(): void {
    this.images.close();
  }

  async list(): Promise<CellInfo[]> {
    return await recordedCells(this.#paths, this.#request.maker);
  }

  usage(id: string): CellUsageNow | null {
    return usageOfCell(id);
  }

  /** Answers with the runs whose cells were removed. */
  async reap(): Promise<string[]> {
    const runs = await reapRuncCells(this.#request.maker, this.#paths);
    await this.images.reap();
    return runs;
  }

  /** Whether cells can be made here: what this machine has, and what came of a cell that was tried, now or before. */
  async usable(): Promise<Usable> {
    const found = await this.#first(null);
    return found.ok ? { ...found, cells: this.#cells() } : found;
  }

  /** The same without trying anything: `null` if that is only found out by a first cell. */
  async known(): Promise<Usable | null> {
    const failed: Failed[] = [];
    for (const runtime of this.#runtimes) {
      const known = await runtime.known();
      if (known === null) return null;
      if (known.ok) return { ok: true, cells: this.#cells(), why: chosenBecause(runtime, failed) };
      failed.push({ name: runtime.name, reason: known.reason });
    }
    return { ok: false, why: noneBecause(failed) };
  }

  /** The first runtime that can make cells here, and this plan's if there is one. */
  async #first(plan: Plan | null): Promise<Usable> {
    const failed: Failed[] = [];
    for (const runtime of this.#runtimes) {
      const against = plan === null ? null : runtime.objection(plan);
      const tried = against === null ? await runtime.usable() : { ok: false as const, reason: against };
      if (tried.ok) return { ok: true, cells: tried.cells, why: chosenBecause(runtime, failed) };
      failed.push({ name: runtime.name, reason: tried.reason });
    }
    return { ok: false, why: noneBecause(failed) };
  }

  /** Each plan's by the runtime that can make it. */
  #cells(): CellMaker {
    const cellsFor = async (plan: Plan): Promise<CellMaker> => {
      const found = await this.#first(plan);
      if (!found.ok) throw new EngineTrouble(found.why);
      return found.cells;
    };
    return {
      start: async (request) => await (await cellsFor(request.plan)).start(request),
      startSession: async (request) => await (await cellsFor(request.plan)).startSession(request),
      startServing: async (request) => await (await cellsFor(request.plan)).startServing(request),
    };
  }
}

interface Failed {
  readonly name: string;
  readonly reason: string;
}

function chosenBecause({ name }: TriedRuntime, failed: readonly Failed[]): string {
  return [`a first cell of ${name} was what was planned`, ...failed.map(whyNot)].join("; ");
}

function noneBecause(failed: readonly Failed[]): string {
  const [first] = failed;
  const isOne = first !== undefined && failed.every(({ reason }) => reason === first.reason);
  return isOne
    ? whyNot({ ...first, name: failed.map(({ name }) => name).join(" and ") })
    : failed.map(whyNot).join("; ");
}

function whyNot({ name, reason }: Failed): string {
  return `${name} cannot make cells here: ${reason}`;
}

type Tried = { readonly ok: true; readonly cells: CellMaker } | { readonly ok: false; readonly reason: string };

/** One runtime, and what came of its first cell. */
class TriedRuntime {
  readonly name: string;
  readonly #request: RuncRequest;
  readonly #images: UnpackedImages;
  readonly #judged: JudgedGround;
  #tried: Promise<Tried> | null = null;

  constructor(name: string, request: RuncRequest, images: UnpackedImages) {
    this.name = name;
    this.#request = request;
    this.#images = images;
    this.#judged = conditionsFor(request.ground.facts, name);
  }

  objection(plan: Plan): string | null {
    return this.#isCrun() ? notForCrun(plan) : null;
  }

  #isCrun(): boolean {
    return this.#judged.ok && this.#judged.conditions.programs.runtime.kind === "crun";
  }

  async usable(): Promise<Tried> {
    this.#tried ??= this.#try();
    return await this.#tried;
  }

  async known(): Promise<Probed | null> {
    return this.#judged.ok
      ? await rememberedProbe(this.#file(), this.#conditions(this.#judged.conditions), Date.now())
      : this.#judged;
  }

  async #try(): Promise<Tried> {
    if (!this.#judged.ok) return this.#judged;
    const { needs } = this.#request;
    const cells = this.#cells(this.#judged.conditions);
    const before = needs.triesAgain ? null : await this.known();
    const probed = before ?? (await this.#probed(cells, this.#judged.conditions));
    return probed.ok ? { ok: true, cells } : probed;
  }

  async #probed(cells: CellMaker, conditions: Conditions): Promise<Probed> {
    const { needs } = this.#request;
    const [image, gate] = [await needs.image(), await needs.gate()];
    if (image === null) return { ok: false, reason: "the image for a first cell is not built" };
    const probed = await probeCell(cells, image, gate, randomBytes(6).toString("hex"));
    await rememberProbe(this.#file(), this.#conditions(conditions), probed, Date.now());
    return probed;
  }

  #cells({ programs, apparmor }: Conditions): CellMaker {
    const { stateDir, maker, seccomp } = this.#request;
    return runcCells({
      maker,
      paths: runcPaths(stateDir),
      images: this.#images,
      seccomp,
      namesDir: statePaths(stateDir).names,
      programs,
      ...(apparmor === null ? {} : { apparmor }),
    });
  }

  #conditions(conditions: Conditions): string {
    return probeConditions(conditions, this.#request.ground.facts.version);
  }

  #file(): string {
    return join(statePaths(this.#request.stateDir).runc, this.#isCrun() ? "probe-crun.json" : "probe.json");
  }
}

/** Cells that Corral makes with runc itself, without the Engine. */
export function runcCells(given: RuncOptions): CellMaker {
  const options: StartOptions = {
    ...given,
    nameFiles: new NameFileSet(given.namesDir),
    filters: new OciFilters(given.seccomp),
    launchers: new Launchers({ owner: given.maker.owner, paths: given.paths, programs: given.programs }),
  };
  // More starts at once do not end sooner: each needs a processor for most of its time.
  const starts = new PQueue({ concurrency: Math.max(4, 2 * availableParallelism()) });
  return {
    start: (request) => starts.add(() => start(options, request)),
    startSession: (request) =>
      starts.add(() => (request.plan.startsCommands === true ? startServer : startSession)(options, request)),
    startServing: (request) => starts.add(() => startServing(options, request)),
  };
}

async function start(options: StartOptions, request: StartRequest): Promise<Start> {
  const started = await startVerified(options, request, request.plan.keeper === undefined ? "at-once" : "lasting");
  return started.ok ? { ok: true, cell: started.cell } : started;
}

async function startSession(options: StartOptions, request: StartRequest): Promise<Start<SessionCell>> {
  const started = await startVerified(options, request, "lasting");
  if (!started.ok) return started;
  return await releasedSession(
    runcSession(started.cell, started.place, () => started.first.isAlive()),
    request,
  );
}

function startServer(options: StartOptions, request: StartRequest): Promise<Start<SessionCell>> {
  return startCommandCell(request, {
    start: (asked) => startVerified(options, asked, "lasting"),
    write: ({ process }, text) => process.write(text),
    execAtTerminal: ({ cell, place, first }, server) =>
      runcSession(
        cell,
        place,
        () => first.isAlive(),
        (act) => server.whileNoneBegins(act),
      ).exec,
  });
}

function startServing(options: StartOptions, request: Omit<StartRequest, "onOutput">): Promise<Start<ServingCell>> {
  return startServingCell(
    request,
    (asked) => startVerified(options, asked, "lasting"),
    ({ process }, text) => process.write(text),
  );
}

/** A cell whose first process only waits, and in which commands run one after another as the worker's user. */
function runcSession(
  cell: Cell,
  place: CommandPlace,
  isAlive: () => boolean,
  whileNoneBegins: CommandServer["whileNoneBegins"] = async (act) => await act([]),
): SessionCell {
  const { user } = place.plan;
  let commands = 0;
  const started = (request: ExecRequest) => {
    commands += 1;
    return runcExec(place, user, `command-${commands}`, request);
  };
  /** Null if it did not start or took too long. */
  const script = async (argv: string[]): Promise<number | null> => {
    const ended = started({ argv, cwd: "/", env: {}, stdin: Buffer.alloc(0), onOutput: () => {} });
    const exit = ended.then(
      (exec) => exec.exit,
      () => null,
    );
    const end = await within(exit, SCRIPT_MS);
    return end?.kind === "exited" ? end.code : null;
  };
  return {
    ...cell,
    [Symbol.asyncDispose]: () => cell[Symbol.asyncDispose](),
    async exec(request) {
      const exec = await started(request);
      const known = knownProcess(exec);
      const signal: Exec["signal"] = async (signal) => {
        const process = await known();
        if (process === null) return false;
        return await whileNoneBegins(async (others) => (await script(signalArguments(signal, process, others))) === 0);
      };
      return { ...exec, signal, exit: exec.exit.then((exit) => judged(exit, cell, place, isAlive)) };
    },
    async signalAll(signal) {
      const argv = [GATE_PATH, "sh", "-c", SIGNAL_ALL_SCRIPT, GATE_PATH, signal.replace(/^SIG/, "")];
      const code = await script(argv);
      if (code !== null) return code === 0;
      // A command can stop a program of its own user before that does anything: then the whole cell is ended from outside.
      await within(
        cell.kill("SIGKILL").catch(() => {}),
        CELL_END_MS,
      );
      return false;
    },
  };
}

/**
 * Only kills for memory since the command's own start count: an earlier command may have lost a child and continued
 * (docs/facts.md, fact: oom-of-a-child).
 */
async function judged(exit: RuncExit, cell: Cell, { group }: CommandPlace, isAlive: () => boolean): Promise<ExecExit> {
  if (exit.kind === "lost") return exit;
  const { code, oomKillsBefore } = exit;
  if (!isAlive()) {
    const end = await within(cell.exit, CELL_END_MS);
    if (end?.kind === "lost") return end;
    return { kind: "exited", code, cellAlive: false, outOfMemory: end?.outOfMemory ?? false };
  }
  const oomKills = group.oomKills();
  const outOfMemory = code === KILLED && oomKills !== null && oomKillsBefore !== null && oomKills > oomKillsBefore;
  return { kind: "exited", code, cellAlive: true, outOfMemory };
}
