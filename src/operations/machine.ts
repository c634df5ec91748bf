import { mkdtemp, rm, stat } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { mountOverlay, overlayPlaces } from "../changes/view/overlay.ts";
import { IMAGES_DIR, packageVersion, shippedPackages } from "../declarations/place/package-root.ts";
import { queueOf } from "../declarations/queue.ts";
import { Descriptor } from "../files/host/descriptor.ts";
import { runSystemProgram } from "../files/host/system-program.ts";
import { openEngine } from "../isolation/open-engine.ts";
import type { CellUsageNow } from "../isolation/port/cell.ts";
import type { CellInfo, Reaped } from "../isolation/port/driver.ts";
import { type EnginePort, EngineUnavailableError } from "../isolation/port/engine.ts";
import { IMAGE_PREFIX } from "../isolation/port/images.ts";
import { roomAt } from "../platform/errno.ts";
import { isContained } from "../run/open/options.ts";
import { roughBytesText } from "../text/amounts.ts";

/** This machine's Engine, and where Corral keeps its own. Each operation throws EngineUnavailableError if no Engine answers. */
export interface MachinePlace {
  /** Absolute. It is made if it is missing. */
  readonly stateDir: string;
  /** Environment variables that locate the Engine, and proxies for building images. */
  readonly engineEnv: Readonly<Record<string, string | undefined>>;
}

/** A container, and what it uses now; null: it does not run, or that is not known. */
export type ListedCell = CellInfo & CellUsageNow;

/** Every container of the state directory, in whatever state; the oldest first. */
export async function listCells(machine: MachinePlace): Promise<ListedCell[]> {
  const { driver } = await openEngine(machine);
  const cells = await Promise.all(
    (await driver.list()).map(async (cell) => ({
      ...cell,
      ...((await driver.usage(cell).catch(() => null)) ?? UNUSED),
    })),
  );
  return cells.toSorted((a, b) => (a.createdAt < b.createdAt ? -1 : 1));
}

const UNUSED: CellUsageNow = { cpuMs: null, memoryBytes: null, memoryBytesPeak: null };

/** What the container of a run uses now; null if it has none that runs, or no Engine answers. */
export async function usageOfRun(machine: MachinePlace, run: string): Promise<CellUsageNow | null> {
  try {
    const { driver } = await openEngine(machine);
    // A session, or an agent, has its commands in a container with an id of its own, which no run called.
    const isOf = (cell: CellInfo): boolean => cell.run === run || (cell.root === run && cell.parent === null);
    const cell = (await driver.list()).find(isOf);
    return cell === undefined ? null : await driver.usage(cell);
  } catch {
    return null;
  }
}

/** Removes what dead orchestrators left behind, and nothing else. */
export async function reapCells(machine: MachinePlace): Promise<Reaped> {
  return await (await openEngine(machine)).driver.reap();
}

/** One thing that `examineMachine` checked. No worker can run while one is `missing`; with a `warning` they can. */
export interface Finding {
  readonly what: string;
  readonly state: "ok" | "warning" | "missing";
  /** For people: what was found and, if it is not ok, what to do. */
  readonly detail: string;
}

/** Whether this machine can run workers. Never throws for what is missing: that is a finding. */
export async function examineMachine(
  machine: MachinePlace,
): Promise<{ readonly ok: boolean; readonly findings: readonly Finding[] }> {
  const findings = await findingsOn(machine);
  return { ok: findings.every(({ state }) => state !== "missing"), findings };
}

async function findingsOn(machine: MachinePlace): Promise<Finding[]> {
  const { stateDir } = machine;
  const findings: Finding[] = [
    { what: "corral", state: "ok", detail: `${packageVersion()} on Node ${process.versions.node}` },
    ...packagesFindings(),
    { what: "user", state: "ok", detail: userText() },
    socketPathFinding(stateDir),
    await allowListFinding(machine),
    ...(await queueFindings(machine)),
  ];
  try {
    const engine = await openEngine({ ...machine, triesAgain: true });
    findings.push(await stateDirFinding(stateDir), await overlayFinding(machine), {
      what: "engine",
      state: "ok",
      detail: engine.description,
    });
    findings.push(...(await capabilityFindings(engine)), ...(await imageFindings(engine)), await gateFinding(engine));
    findings.push(...diskFindings({ "state directory": stateDir, "engine's data": engine.hostPlaces.data[0] }));
    findings.push(await driverFinding(engine));
  } catch (error) {
    const what = error instanceof EngineUnavailableError ? "engine" : "state directory";
    findings.push({ what, state: "missing", detail: (error as Error).message });
  }
  return findings;
}

/** With less, a fleet of large files, or an image, may find no room. */
const LITTLE_BYTES = 1024 ** 3;

/** Where Corral and its containers write. Folders of one file system are told as one. */
function diskFindings(places: Readonly<Record<string, string | undefined>>): Finding[] {
  const found = new Map<string, { names: string[]; detail: string; state: Finding["state"] }>();
  for (const [name, path] of Object.entries({ ...places, "temporary files": tmpdir() })) {
    const room = path === undefined ? null : roomAt(path);
    if (path === undefined || room === null) continue;
    const { freeBytes, totalBytes, isFull } = room;
    const state = isFull ? "missing" : freeBytes < LITTLE_BYTES ? "warning" : "ok";
    const advice = state === "ok" ? "" : `; free space at ${path}: \`corral gc\`, \`docker system df\``;
    const detail = `${roughBytesText(freeBytes)} of ${roughBytesText(totalBytes)} free${isFull ? ", or no file more" : ""}${advice}`;
    const known = found.get(detail.replace(path, ""));
    if (known === undefined) found.set(detail.replace(path, ""), { names: [name], detail, state });
    else known.names.push(name);
  }
  return [...found.values()].map(({ names, detail, state }) => ({
    what: "disk",
    state,
    detail: `${names.join(", ")}: ${detail}`,
  }));
}

/** Of the queue that the environment names, or the project in this folder. */
async function queueFindings({ engineEnv }: MachinePlace): Promise<Finding[]> {
  const what = "queue";
  try {
    const queue = await queueOf(process.cwd(), engineEnv);
    if (queue === null) return [];
    const { examineQueue } = await import("../fleet/postgres/postgres-store.ts");
    const { detail, warnings } = await examineQueue(queue);
    return [
      { what, state: "ok", detail },
      ...warnings.map((text) => ({ what, state: "warning" as const, detail: text })),
    ];
  } catch (error) {
    return [{ what, state: "missing", detail: (error as Error).message }];
  }
}

function packagesFindings(): Finding[] {
  const shipped = shippedPackages();
  if (shipped === null) return [];
  const { count, list, licences } = shipped;
  return [{ what: "packages", state: "ok", detail: `${count} in the program: ${list}; licences: ${licences}` }];
}

function userText(): string {
  const uid = process.getuid?.() ?? 0;
  return uid === 0 ? "root" : `uid ${uid}, groups ${process.getgroups?.().join(" ")}`;
}

async function allowListFinding({ engineEnv }: MachinePlace): Promise<Finding> {
  const what = "allow lists";
  // A user owns the networks of cells that bubblewrap makes.
  if (process.getuid?.() !== 0 && engineEnv.CORRAL_DRIVER !== "bwrap")
    return {
      what,
      state: "ok",
      detail: `not root: a second container, of ${IMAGE_PREFIX}/node, listens in the network of each cell`,
    };
  if (await runSystemProgram("nsenter", ["--version"]))
    return { what, state: "ok", detail: "listened to in the network of each cell, by nsenter" };
  return { what, state: "warning", detail: "refused: the program nsenter of util-linux is not installed" };
}

/** The kernel takes 107 bytes for the path of a socket; below the state directory come `live/`, an owner, a run and `s`. */
function socketPathFinding(stateDir: string): Finding {
  const room = 107 - Buffer.byteLength("/live/0123456789/0123456789ab/s");
  const fits = Buffer.byteLength(stateDir) <= room;
  const detail = fits
    ? `short enough below ${stateDir}`
    : `${stateDir} is longer than ${room} bytes; set CORRAL_STATE_DIR to a shorter path`;
  return { what: "socket path", state: fits ? "ok" : "missing", detail };
}

async function stateDirFinding(stateDir: string): Promise<Finding> {
  const { mode } = await stat(stateDir);
  const open = (mode & 0o077) !== 0;
  const permissions = (mode & 0o777).toString(8);
  const detail = open
    ? `other users can read it (mode ${permissions}); run: chmod 700 ${stateDir}`
    : `mode ${permissions}`;
  return { what: "state directory", state: open ? "warning" : "ok", detail };
}

/** One is mounted to see it: not every file system can carry one. */
async function overlayFinding({ stateDir, engineEnv }: MachinePlace): Promise<Finding> {
  const what = "overlays";
  const none = (why: string, state: Finding["state"]): Finding => ({
    what,
    state,
    detail: `${why}: staged directories and snapshots are copies, and \`root: writable\` is refused`,
  });
  if (process.getuid?.() !== 0) return none("not root", "ok");
  if (isContained({ engineEnv })) return none("the Engine would not see those of this container", "ok");
  const dir = await mkdtemp(join(stateDir, ".overlay-"));
  try {
    using lower = Descriptor.name(dir, true);
    const overlay = await mountOverlay([lower], overlayPlaces(dir));
    if (overlay === null) return none(`the file system of ${stateDir} carries none`, "warning");
    await overlay.unmount();
    return { what, state: "ok", detail: "staged directories are overlays, and sessions may have `root: writable`" };
  } finally {
    await rm(dir, { recursive: true, force: true });
  }
}

async function capabilityFindings({ driver }: EnginePort): Promise<Finding[]> {
  const { engine, version, missing, weaknesses = [], facts } = await driver.capabilities();
  const about = Object.entries(facts).map(([name, fact]) => `${name} ${fact}`);
  return [
    { what: "engine", state: "ok", detail: `${engine} ${version}: ${about.join("; ")}` },
    ...missing.map((need): Finding => ({ what: "engine", state: "missing", detail: need })),
    ...weaknesses.map((weakness): Finding => ({ what: "engine", state: "warning", detail: weakness })),
  ];
}

/** The Engine in place of runc enforces the same; a driver that was asked for and cannot be used is missing. */
async function driverFinding(engine: EnginePort): Promise<Finding> {
  const what = "driver";
  try {
    const { driver, why } = await engine.driving("runs");
    if (driver === null) return { what, state: "missing", detail: `none: ${why}` };
    const items = await engine.driving("items");
    const ofItems = items.why === why ? "" : `; fresh items of fleets: ${items.driver}, ${items.why}`;
    return { what, state: "ok", detail: `${driver}: ${why}${ofItems}` };
  } catch (error) {
    return { what, state: "missing", detail: (error as Error).message };
  }
}

async function imageFindings({ images }: EnginePort): Promise<Finding[]> {
  const statuses = await images.status(IMAGES_DIR);
  return statuses.map(({ tag, name, state }): Finding => {
    if (state === "present") return { what: "image", state: "ok", detail: tag };
    const detail = `${tag} is ${state}; run: corral images build ${name}`;
    return { what: "image", state: state === "missing" ? "missing" : "warning", detail };
  });
}

async function gateFinding(engine: EnginePort): Promise<Finding> {
  try {
    return { what: "gate", state: "ok", detail: await engine.gate() };
  } catch (error) {
    return { what: "gate", state: "missing", detail: (error as Error).message };
  }
}
