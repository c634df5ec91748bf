import { randomBytes } from "node:crypto";
import { availableParallelism } from "node:os";
import { join } from "node:path";
import PQueue from "p-queue";
import { statePaths } from "../../state/state-paths.ts";
import { startCommandCell } from "../commands/command-cell.ts";
import { fillSecrets } from "../commands/command-start.ts";
import { NameFileSet } from "../network/name-files.ts";
import type { Plan } from "../plan/plan.ts";
import type { ImageFacts } from "../plan/plan-for.ts";
import type { CellUsageNow, ServingCell, SessionCell } from "../port/cell.ts";
import type { CellInfo, Start, StartRequest } from "../port/driver.ts";
import type { EngineGround } from "../port/images.ts";
import type { Maker } from "../port/labels.ts";
import { asServingCell, ServingReplies } from "../serving/serving-cell.ts";
import { Launchers } from "./cells/launchers.ts";
import { OciFilters } from "./cells/oci-seccomp.ts";
import { runcSession } from "./cells/session.ts";
import { type StartOptions, startVerified } from "./cells/start.ts";
import { type Conditions, conditionsFor } from "./ground/conditions.ts";
import { type Probed, probeCell, probeConditions, rememberedProbe, rememberProbe } from "./ground/probe-cell.ts";
import { UnpackedImages } from "./ground/unpacked-images.ts";
import { reapRuncCells, recordedCells, usageOfCell } from "./ledger/reap-cells.ts";
import { notForRunc, type RuncCells, type RuncOptions, type RuncPaths, runcPaths } from "./model/layout.ts";

export interface RuncRequest {
  readonly stateDir: string;
  readonly maker: Maker;
  /** As in `RuncOptions`. */
  readonly seccomp: string;
  readonly ground: EngineGround;
}

/** What a probe needs. Both reject with the reason if it is missing. */
export interface ProbeNeeds {
  /** The image of the probe; null if the Engine does not have it. */
  image(): Promise<ImageFacts | null>;
  gate(): Promise<string>;
  /** Whether to make a first cell also if it is known what came of one. */
  readonly triesAgain: boolean;
}

export type Usable = { readonly ok: true; readonly cells: RuncCells } | { readonly ok: false; readonly reason: string };

/** Cells of runc for one state directory. What dead processes left is found and removed also where none can be made. */
export class Runc {
  readonly images: UnpackedImages;
  readonly #request: RuncRequest;
  readonly #paths: RuncPaths;

  constructor(request: RuncRequest) {
    this.#request = request;
    const { stateDir, maker, ground } = request;
    this.#paths = runcPaths(stateDir);
    const { images: dir, layers: layersDir } = this.#paths;
    this.images = new UnpackedImages({ dir, layersDir, ground, owner: maker.owner });
  }

  /** Why such a plan is for the Engine; null if its cells can be made here, if any can. */
  async objection(plan: Plan): Promise<string | null> {
    return notForRunc(plan) ?? (await this.images.objection(plan.image.id));
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
  async usable(needs: ProbeNeeds): Promise<Usable> {
    const judged = conditionsFor(this.#request.ground.facts);
    if (!judged.ok) return judged;
    const cells = this.#cellsUnder(judged.conditions);
    const probed = await this.#probed(judged.conditions, cells, needs);
    return probed.ok ? { ok: true, cells } : probed;
  }

  /** The same without trying anything: `null` if that is only found out by a first cell. */
  async known(): Promise<Usable | null> {
    const judged = conditionsFor(this.#request.ground.facts);
    if (!judged.ok) return judged;
    const { conditions } = judged;
    const before = await rememberedProbe(this.#probeFile(), this.#probeConditions(conditions), Date.now());
    return before?.ok ? { ok: true, cells: this.#cellsUnder(conditions) } : before;
  }

  async #probed(conditions: Conditions, cells: RuncCells, needs: ProbeNeeds): Promise<Probed> {
    const file = this.#probeFile();
    const of = this.#probeConditions(conditions);
    const before = needs.triesAgain ? null : await rememberedProbe(file, of, Date.now());
    if (before !== null) return before;
    const [image, gate] = [await needs.image(), await needs.gate()];
    if (image === null) return { ok: false, reason: "the image for a first cell is not built" };
    const probed = await probeCell(cells, image, gate, randomBytes(6).toString("hex"));
    await rememberProbe(file, of, probed, Date.now());
    return probed;
  }

  #cellsUnder({ programs, apparmor }: Conditions): RuncCells {
    const { stateDir, maker, seccomp } = this.#request;
    return runcCells({
      maker,
      paths: this.#paths,
      images: this.images,
      seccomp,
      namesDir: statePaths(stateDir).names,
      programs,
      ...(apparmor === null ? {} : { apparmor }),
    });
  }

  #probeConditions(conditions: Conditions): string {
    return probeConditions(conditions, this.#request.ground.facts.version);
  }

  #probeFile(): string {
    return join(statePaths(this.#request.stateDir).runc, "probe.json");
  }
}

/** Cells that Corral makes with runc itself, without the Engine. */
export function runcCells(given: RuncOptions): RuncCells {
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

/** Its commands are another user than its gate, so a program of theirs makes the files of its secrets, before any command. */
async function startSession(options: StartOptions, request: StartRequest): Promise<Start<SessionCell>> {
  const started = await startVerified(options, request, "lasting");
  if (!started.ok) return started;
  const { place, first } = started;
  const cell = runcSession(started.cell, place, () => first.isAlive());
  cell.release(new Uint8Array());
  const { plan, secrets } = request;
  try {
    if (plan.secrets !== undefined) await fillSecrets(cell, plan.secrets, secrets ?? new Map());
    return { ok: true, cell };
  } catch (error) {
    await cell[Symbol.asyncDispose]();
    throw error;
  }
}

function startServer(options: StartOptions, request: StartRequest): Promise<Start<SessionCell>> {
  return startCommandCell(request, {
    start: (asked) => startVerified(options, asked, "lasting"),
    write: ({ process }, text) => process.write(text),
    execAtTerminal: ({ cell, place, first }) => runcSession(cell, place, () => first.isAlive()).exec,
  });
}

/** Released at once: it then waits for the first item. */
async function startServing(
  options: StartOptions,
  request: Omit<StartRequest, "onOutput">,
): Promise<Start<ServingCell>> {
  const answers = new ServingReplies();
  const started = await startVerified(options, { ...request, onOutput: answers.add.bind(answers) }, "lasting");
  if (!started.ok) return started;
  const cell = asServingCell(started.cell, (text) => started.process.write(text), answers);
  cell.release(new Uint8Array());
  return { ok: true, cell };
}
