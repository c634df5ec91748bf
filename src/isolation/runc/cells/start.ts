import { randomBytes } from "node:crypto";
import fs, { readlinkSync } from "node:fs";
import { join } from "node:path";
import { setTimeout as pause } from "node:timers/promises";
import { hasCode } from "../../../platform/errno.ts";
import { within } from "../../../platform/within.ts";
import type { NetworkPlace } from "../../../sandbox/network/rule.ts";
import type { Violation } from "../../../sandbox/violation.ts";
import { present } from "../../../text/present.ts";
import { collectSockets, heldBytes } from "../../disk/unnamed-files.ts";
import { reportWithin } from "../../gate/gate-streams.ts";
import { gateSecrets, parseGateReport, secretLines } from "../../gate/report.ts";
import { verifyCell } from "../../gate/verify.ts";
import { type ControlGroup, findControlGroup, socketBytes, UsageSampler } from "../../kernel/control-group.ts";
import { type FirstProcess, findFirstProcess } from "../../kernel/first-process.ts";
import { CellNetwork, enterFromOutside, type OpenPlaces } from "../../network/listen-in.ts";
import type { NameFileSet } from "../../network/name-files.ts";
import { mountPointsOf, refusalOfEntries } from "../../plan/mounts.ts";
import { type Enforcement, gateOf, type Plan } from "../../plan/plan.ts";
import { refusalFrom } from "../../plan/plan-for.ts";
import type { Cell, CellExit } from "../../port/cell.ts";
import { EngineTrouble, type Start, type StartRequest } from "../../port/driver.ts";
import { labelsFor, type Maker } from "../../port/labels.ts";
import type { OciFilters } from "../../seccomp/planned-profile.ts";
import { misplacedMounts } from "../../sources/pin.ts";
import {
  type CellPaths,
  cellId,
  cellPaths,
  cgroupPlace,
  DRAFT_PREFIX,
  notForCrun,
  notForRunc,
  type RuncOptions,
  type RuncPaths,
} from "../model/layout.ts";
import { isUnified, killCell, removeCell } from "../remains/remove-cell.ts";
import type { CommandPlace } from "./exec.ts";
import type { LaunchPlace } from "./launcher.ts";
import type { Launchers } from "./launchers.ts";
import { hasInit, ImageInTheWay, INIT_PATH, ociConfig, ociMounts } from "./oci-config.ts";
import { type LaunchRequest, type RuncProcess, startRunc } from "./runc-process.ts";

/** The name of a run is that of another cell. */
class CellNameTaken extends EngineTrouble {}

/**
 * Makes the directory of a cell, with its labels in it from the first moment in which it has its name: whatever is made for
 * the cell later can be found by them if this process dies. Each call takes microseconds, and a turn of a thread for it takes longer.
 */
function makeCellFolder(paths: RuncPaths, maker: Maker, plan: Plan): CellPaths {
  fs.mkdirSync(paths.cells, { recursive: true, mode: 0o700 });
  const draft = cellPaths(join(paths.cells, `${DRAFT_PREFIX}${randomBytes(6).toString("hex")}`));
  const cell = cellPaths(join(paths.cells, plan.run));
  fs.mkdirSync(draft.dir, { mode: 0o700 });
  try {
    const labels = labelsFor(maker, "cell", cellId(maker.sealKey, plan.run), plan);
    fs.writeFileSync(draft.labels, JSON.stringify(labels), { mode: 0o600 });
    fs.renameSync(draft.dir, cell.dir);
    return cell;
  } catch (error) {
    fs.rmSync(draft.dir, { recursive: true, force: true });
    if (hasCode(error, "ENOTEMPTY", "EEXIST"))
      throw new CellNameTaken(`the name of the run ${plan.run} is already in use`, { cause: error });
    throw error;
  }
}

/** How often a cell is made before its start has failed. */
const MAX_ATTEMPTS = 3;
/** How long runc may take to notice the end of its cell. */
const END_MS = 10_000;

export interface StartOptions extends RuncOptions {
  readonly nameFiles: NameFileSet;
  readonly filters: OciFilters;
  readonly launchers: Launchers;
}

/** The parts of a verified cell, from which each kind of cell is made. */
export type Started =
  | {
      readonly ok: true;
      readonly cell: Cell;
      readonly process: RuncProcess;
      readonly place: CommandPlace;
      readonly first: FirstProcess;
    }
  | Extract<Start, { ok: false }>;

/**
 * Nothing of the worker has run before its cell is verified. So a start that failed is undone and made again, whatever
 * failed.
 */
export async function startVerified(
  options: StartOptions,
  request: StartRequest,
  input: LaunchRequest["input"],
): Promise<Started> {
  const isCrun = options.programs.runtime.kind === "crun";
  const reason = notForRunc(request.plan) ?? (isCrun ? notForCrun(request.plan) : null);
  if (reason !== null) return refused({ code: "ENFORCEMENT_MISSING", missing: [`a cell of runc: ${reason}`] });
  for (let attempt = 1; ; attempt += 1) {
    const remains = new CellRemains(options, request.plan.run);
    try {
      const made = await startOnce(options, request, input, remains);
      if (!made.ok) await remains.remove();
      return made;
    } catch (error) {
      const violation = await undone(error, request, remains);
      if (violation !== null) return refused(violation);
      if (attempt === MAX_ATTEMPTS || error instanceof CellNameTaken) throw asTrouble(error);
    }
  }
}

function refused(violation: Violation): Started {
  return { ok: false, violations: [violation] };
}

/** Cleans up after a start that failed. Null if it may be made again. */
async function undone(error: unknown, { plan, signal }: StartRequest, remains: CellRemains): Promise<Violation | null> {
  const left = await remains.remove().then(
    () => null,
    (trouble: Error) => trouble,
  );
  signal.throwIfAborted();
  if (left !== null)
    throw new EngineTrouble(`${(error as Error).message}; and a cell could not be removed: ${left.message}`, {
      cause: error,
    });
  if (error instanceof ImageInTheWay) return refusalOfEntries(plan, error.entries);
  return refusalFrom((error as Error).message, plan);
}

function asTrouble(error: unknown): EngineTrouble {
  return error instanceof EngineTrouble ? error : new EngineTrouble((error as Error).message, { cause: error });
}

/** What was made for one cell, and how to remove all of it in any state. */
class CellRemains {
  folder: CellPaths | null = null;
  placing: Promise<LaunchPlace> | null = null;
  process: RuncProcess | null = null;
  network: CellNetwork | null = null;
  image: Disposable | null = null;
  readonly id: string;
  readonly #options: RuncOptions;
  #removal: Promise<void> | null = null;

  constructor(options: RuncOptions, run: string) {
    this.#options = options;
    this.id = cellId(options.maker.sealKey, run);
  }

  /** Once, for however often it is called; again if it failed. */
  async remove(): Promise<void> {
    this.#removal ??= this.#remove();
    try {
      await this.#removal;
    } catch (error) {
      this.#removal = null;
      throw asTrouble(error);
    }
  }

  async #remove(): Promise<void> {
    const { folder, process, network } = this;
    process?.close();
    // Nothing was started there.
    if (process === null)
      void this.placing?.then(
        (place) => place.letGo(),
        () => {},
      );
    await this.#endProcess(process);
    await network?.[Symbol.asyncDispose]();
    if (folder !== null) await removeCell(this.#options.paths, this.id, folder.dir, true);
    this.image?.[Symbol.dispose]();
  }

  /** A runc that is still about to make the cell makes new processes while others end. */
  async #endProcess(process: RuncProcess | null): Promise<void> {
    if (process === null) return;
    if (!process.hasEnded()) await killCell(this.id);
    if ((await within(process.end, GRACE_MS)) !== null) return;
    await process.kill();
    await killCell(this.id);
    if ((await within(process.end, END_MS)) === null) throw new EngineTrouble("runc does not end");
  }
}

/** How long runc may take to notice that its cell was ended. */
const GRACE_MS = 250;

async function startOnce(
  options: StartOptions,
  request: StartRequest,
  input: LaunchRequest["input"],
  remains: CellRemains,
): Promise<Started> {
  const { maker, paths, images, nameFiles, filters, launchers, programs } = options;
  const { plan, signal, pins } = request;
  const { id } = remains;
  signal.throwIfAborted();
  const image = await images.use(plan.image.id);
  remains.image = image;
  if (image === null) return refused({ code: "IMAGE_MISSING", image: plan.image.name });
  // It mounts the image while the rest is made.
  const placing = launchers.take(
    image,
    gateOf(plan),
    plan.mounts.map(({ host }) => host),
  );
  placing.catch(() => {});
  remains.placing = placing;
  const unified = isUnified();
  const by = programs.runtime.kind;
  const mounts = ociMounts(plan, { pins, names: await nameFiles.files(), init: programs.init, by, unified });
  const config = ociConfig({ plan, mounts, id, root: "root", options, filters, ownCgroupNamespace: unified });

  const folder = makeCellFolder(paths, maker, plan);
  remains.folder = folder;
  signal.throwIfAborted();

  const process = await startRunc({
    place: await placing,
    run: plan.run,
    id,
    dir: folder.dir,
    config: JSON.stringify(config),
    mountPoints: mountPointsOf(plan, hasInit(plan) ? [{ path: INIT_PATH, kind: "file" }] : []),
    input,
    onOutput: request.onOutput,
    signal,
  });
  remains.process = process;
  const network = new CellNetwork((places) => enter(id, process, places));
  remains.network = network;
  if (typeof plan.network !== "string") network.openAhead(plan.network.listeners);
  const report = parseGateReport(await reportWithin(process.streams.report, signal));

  const { enforcement, violations } = verifyCell(plan, report, "runc");
  const refusals = [...violations, ...misplacedMounts(plan.mounts, pins)];
  if (refusals.length > 0) return { ok: false, violations: refusals };
  const group = findControlGroup([cgroupPlace(id)]);
  const first = findFirstProcess(group);
  if (group === null || first === null) throw new EngineTrouble("this machine does not show the processes of a cell");
  const cell = runcCell({
    id,
    process,
    first,
    group,
    enforcement: { ...enforcement, socketMemory: group.boundSockets(socketBytes(plan.limits.memoryBytes)) },
    ahead: secretLines(gateSecrets(plan), request.secrets ?? new Map()),
    namespace: report.namespaces.get("/proc/self/ns/net") ?? "",
    network,
    remove: () => remains.remove(),
  });
  return { ok: true, cell, process, place: { id, plan, folder, group, options }, first };
}

/** How often Corral checks a cell that is starting. */
const LOOK_MS = 2;
const MAX_LOOKS = 15_000;

/** Enters the network of a cell as soon as its loopback device is up: runc has brought it up when the first process is no longer runc's. */
async function enter(id: string, process: RuncProcess, places: readonly NetworkPlace[]): Promise<OpenPlaces | null> {
  let over = false;
  void process.end.then(() => {
    over = true;
  });
  for (let looks = 0; looks < MAX_LOOKS; looks += 1) {
    const first = findFirstProcess(findControlGroup([cgroupPlace(id)]));
    if (first !== null && hasBegun(first.pid)) return await enterFromOutside(first.pid, places);
    await pause(LOOK_MS);
    if (over) break;
  }
  throw new EngineTrouble("the cell has ended, so nothing can listen in its network");
}

/** False while it is a program of runc, which may be one in memory. */
function hasBegun(pid: number): boolean {
  try {
    return !/runc|crun/.test(readlinkSync(`/proc/${pid}/exe`));
  } catch {
    return false;
  }
}

interface RuncCellParts {
  readonly id: string;
  readonly process: RuncProcess;
  readonly first: FirstProcess;
  readonly group: ControlGroup;
  readonly enforcement: Enforcement;
  /** What the gate reads before the worker's input. */
  readonly ahead: Buffer;
  /** The number of its network namespace, as the gate reported it. */
  readonly namespace: string;
  readonly network: CellNetwork;
  readonly remove: () => Promise<void>;
}

/** A verified cell whose worker waits behind the gate. */
function runcCell(parts: RuncCellParts): Cell {
  const { id, process, first, group, enforcement, ahead, namespace, network, remove } = parts;
  const sampler = new UsageSampler(() => ({ by: "files", read: () => group.usage() }));
  let killed = false;
  const exit = ended(parts, sampler, () => killed);
  return {
    id,
    enforcement,
    exit,
    release(input, rest) {
      sampler.begin();
      process.release(ahead.length === 0 ? input : Buffer.concat([ahead, input]), rest);
    },
    listen: (places, accept) => network.listen(namespace, places, accept),
    async unnamedBytes() {
      await collectSockets();
      // An id may have been reused: files of the new process are not this cell's.
      return await heldBytes(group.processes(), async (pid) => group.processes().includes(pid));
    },
    async kill(signal) {
      killed = true;
      if (signal === "SIGTERM") return first.signal(signal);
      first.signal(signal);
      await killCell(id);
    },
    async [Symbol.asyncDispose]() {
      sampler.stop();
      await remove();
    },
  };
}

/** Whatever is not known for certain is lost: runc's answer alone is none. */
async function ended(
  { id, process, first, group }: RuncCellParts,
  sampler: UsageSampler,
  killed: () => boolean,
): Promise<CellExit> {
  try {
    const end = await process.end;
    // Before the group is removed.
    const oomKills = group.oomKills();
    sampler.add(group.usage());
    if (end.kind === "failed" || first.isAlive()) {
      await killCell(id);
      return { kind: "lost", reason: end.kind === "failed" ? end.reason : "runc ended before its cell" };
    }
    if (!process.streams.hasBegun && !killed())
      return { kind: "lost", reason: "the cell ended before its worker began" };
    if (oomKills === null) return { kind: "lost", reason: "the cell's control group was removed while it ran" };
    const further = present({ bySignal: process.streams.endedBySignal(end.code) });
    return { kind: "exited", code: end.code, outOfMemory: oomKills > 0, usage: sampler.last(), ...further };
  } catch (error) {
    return { kind: "lost", reason: (error as Error).message };
  } finally {
    sampler.stop();
    process.close();
  }
}
