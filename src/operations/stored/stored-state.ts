import { join } from "node:path";
import { RootTrees } from "../../changes/layers/root-trees.ts";
import { type SnapshotRecord, SnapshotStore } from "../../changes/layers/snapshot-store.ts";
import { isOfFailedRun } from "../../changes/store/record.ts";
import { IMAGES_DIR } from "../../declarations/place/package-root.ts";
import { Descriptor } from "../../files/host/descriptor.ts";
import { openFleetStoreAt } from "../../fleet/fleet-stores.ts";
import { projectFolders, runFolders } from "../../history/recording.ts";
import { DEFAULT_KEEP, prune } from "../../history/retention.ts";
import { treeUsage } from "../../isolation/disk/tree-usage.ts";
import { openEngine } from "../../isolation/open-engine.ts";
import { EngineTrouble } from "../../isolation/port/driver.ts";
import { EngineUnavailableError } from "../../isolation/port/engine.ts";
import { changesetStore } from "../../run/changes/into-project.ts";
import { historyBytes } from "../../run/open/options.ts";
import { deadOwnerDirs, livingOwnerDirs } from "../../state/live-dir.ts";
import { currentOwner, lockOwner } from "../../state/owner.ts";
import { removeStateEntry, type StateEntry, stateEntries, statePaths } from "../../state/state-dir.ts";
import { Changesets } from "../changesets.ts";
import { removeUnusedEnvironments } from "../images.ts";
import { listCells, type MachinePlace, reapCells } from "../machine.ts";
import { RequestError } from "../request-error.ts";

/** How much of one kind there is. */
export interface Measured {
  /** On the disk. */
  readonly bytes: number;
  /** Of what the kind is counted in. */
  readonly count: number;
  /** False: there is more, because it could not be read, or not in time. */
  readonly complete: boolean;
}

/** One thing that `gc` removed or would remove. */
export interface Removed {
  /** Its id or its name. */
  readonly what: string;
  /** Null if it is not known what it frees. */
  readonly bytes: number | null;
  readonly why: string;
}

export interface CollectOptions {
  /** In milliseconds; null: each kind has its own age. */
  readonly olderThanMs: number | null;
  /** Removes nothing. */
  readonly dryRun: boolean;
  readonly nowMs: number;
}

/** One kind of what Corral keeps. A further kind is a further entry of the table in `stored-state.ts`. */
export interface StoredKind {
  /** As `du` and `gc` name it. */
  readonly name: string;
  /** What it is counted in, and what one of it is called. */
  readonly unit: string;
  readonly one: string;
  /** What `gc` removes of it, and what removes the rest. */
  readonly rule: string;
  /** Rejects if it cannot be known now, for example without an Engine. */
  measure(machine: MachinePlace, signal: AbortSignal): Promise<Measured>;
  /** How many there are that `gc` never removes; absent: none. */
  staying?(machine: MachinePlace): Promise<number>;
  /** Removes what may go, also while other processes run. */
  collect(machine: MachinePlace, options: CollectOptions): Promise<readonly Removed[]>;
}

/** For kinds of which `gc` removes nothing. */
const nothing = async (): Promise<readonly Removed[]> => [];

const ENOUGH = Number.POSITIVE_INFINITY;

/** Without following links or entering mounts. A path that does not exist has nothing. */
export async function measured(paths: readonly string[], signal: AbortSignal): Promise<Omit<Measured, "count">> {
  let [bytes, complete] = [0, true];
  for (const path of paths) {
    try {
      using root = Descriptor.name(path);
      const stats = root.stat();
      if (!stats.isDirectory()) {
        bytes += stats.blocks * 512;
        continue;
      }
      const usage = await treeUsage(root, ENOUGH, signal);
      bytes += usage.bytes;
      complete &&= usage.complete;
    } catch (error) {
      if ((error as NodeJS.ErrnoException).code !== "ENOENT") complete = false;
      if (signal.aborted) break;
    }
  }
  return { bytes, complete };
}

const DAY_MS = 86_400_000;
const ANYTHING = /^/;
const CHANGESET = /^[0-9a-f]/;
const PROJECT = /^[0-9a-f]{16}$/;
const ENVIRONMENT = /^[0-9a-f]{64}(\.new)?$/;

/** Everything that Corral keeps, each kind once. `du` measures it, `gc` removes what may go. */
const STORED_KINDS: readonly StoredKind[] = [
  {
    name: "runs",
    unit: "runs",
    one: "run",
    rule: "30 days, 1,000 of a project, 1 GiB in all, if nothing else is set",
    async measure({ stateDir }, signal) {
      const projects = await projectFolders(statePaths(stateDir).runs);
      const folders = (await Promise.all(projects.map(runFolders))).flat();
      const paths = folders.map(({ dir }) => dir);
      return { ...(await measured(paths, signal)), count: folders.length };
    },
    async collect({ stateDir, engineEnv }, { olderThanMs, nowMs, dryRun }) {
      // Where the history is off, what is left of it goes by its age.
      const maxBytes = historyBytes(engineEnv) ?? Number.POSITIVE_INFINITY;
      const age = olderThanMs === null ? {} : { olderThanMs };
      const options = { maxBytes, nowMs, dryRun, isDead: lockOwner().isDead, ...age };
      const { removed } = await prune(statePaths(stateDir).runs, options);
      return removed.map(({ run, bytes, why }) => ({ what: run, bytes, why }));
    },
  },
  {
    name: "fleets",
    unit: "projects",
    one: "project",
    rule: "results, also as a cache; only with --older-than, or `corral fleet rm`",
    measure: ({ stateDir }, signal) => measuredEntries(join(stateDir, "fleets"), PROJECT, signal),
    collect: collectFleets,
  },
  {
    name: "changes",
    unit: "changesets",
    one: "changeset",
    rule: "of runs that failed, 30 days and 1 GiB of a project; others wait for `corral changes apply` or `discard`",
    measure: ({ stateDir }, signal) => measuredEntries(statePaths(stateDir).changes, CHANGESET, signal),
    staying: async ({ stateDir }) =>
      (await changesetStore(stateDir).list()).filter((one) => !one.ok || !isOfFailedRun(one.state)).length,
    collect: collectFailedChanges,
  },
  {
    name: "transcripts",
    unit: "projects",
    one: "project",
    rule: "30 days, if nothing else is said",
    measure: ({ stateDir }, signal) => measuredEntries(join(stateDir, "transcripts"), PROJECT, signal),
    async collect({ stateDir }, options) {
      const projects = await stateEntries(join(stateDir, "transcripts"), PROJECT);
      const files = await Promise.all(projects.map(({ path }) => stateEntries(path, /^[0-9a-f]{12}\.jsonl$/)));
      return await removeOld(files.flat(), options);
    },
  },
  {
    name: "snapshots",
    unit: "snapshots",
    one: "snapshot",
    rule: "of sessions, 30 days; those with a name only with --older-than, or `corral session snapshots --rm`",
    async measure({ stateDir }, signal) {
      const stores = await snapshotStores(stateDir);
      const all = await Promise.all(stores.map(({ store }) => store.list()));
      const paths = stores.map(({ path }) => path);
      return { ...(await measured(paths, signal)), count: all.flat().length };
    },
    collect: collectSnapshots,
  },
  {
    name: "approvals",
    unit: "projects",
    one: "project",
    rule: "questions that were decided 30 days ago, and all but the newest 500 of a project",
    measure: ({ stateDir }, signal) => measuredEntries(statePaths(stateDir).inbox, PROJECT, signal),
    collect: collectQuestions,
  },
  {
    name: "audit",
    unit: "projects",
    one: "project",
    rule: "never: a trail with a gap proves nothing",
    measure: ({ stateDir }, signal) => measuredEntries(join(stateDir, "audit"), PROJECT, signal),
    staying: async ({ stateDir }) => (await stateEntries(join(stateDir, "audit"), PROJECT)).length,
    collect: nothing,
  },
  {
    name: "live",
    unit: "processes",
    one: "process",
    rule: "directories and containers of dead processes, as `corral reap` does",
    measure: ({ stateDir }, signal) => measuredEntries(statePaths(stateDir).live, ANYTHING, signal),
    collect: collectDead,
  },
  {
    name: "git",
    unit: "projects",
    one: "project",
    rule: "mirrors that no run used for 30 days, while no corral runs",
    measure: ({ stateDir }, signal) => measuredEntries(join(stateDir, "git"), PROJECT, signal),
    async collect({ stateDir }, options) {
      if ((await livingOwnerDirs(statePaths(stateDir).live, currentOwner())).length > 0) return [];
      const projects = await stateEntries(join(stateDir, "git"), PROJECT);
      const mirrors = await Promise.all(projects.map(({ path }) => stateEntries(path, /\.git(\.removed)?$/)));
      return await removeOld(mirrors.flat(), options);
    },
  },
  {
    name: "compiled",
    unit: "versions",
    one: "version",
    rule: "what Node compiled and did not use for 30 days; made again",
    ...madeAgain("compiled"),
  },
  {
    name: "names",
    unit: "files",
    one: "file",
    rule: "users of cells that no run was given for 30 days; made again",
    ...madeAgain("sharedNames"),
  },
  {
    name: "environments",
    unit: "environments",
    one: "environment",
    rule: "packages of workers that no run used for 30 days; prepared again",
    async measure({ stateDir }, signal) {
      return await measuredEntries(statePaths(stateDir).environments, ENVIRONMENT, signal);
    },
    async collect(machine, options) {
      const { olderThanMs, nowMs: now, dryRun } = options;
      const unusedMs = olderThanMs ?? DEFAULT_KEEP.days * DAY_MS;
      const removed = await removeUnusedEnvironments(machine, { unusedMs, now, dryRun });
      return removed.map(({ name, sizeBytes }) => ({ what: name, bytes: sizeBytes, why: ageText(options) }));
    },
  },
  {
    name: "images",
    unit: "images",
    one: "image",
    rule: "`corral images rm` removes those of projects; layers count in each",
    async measure(machine) {
      const { images } = await openEngine({ ...machine, looksOnly: true });
      const [own, made] = await Promise.all([images.status(IMAGES_DIR), images.made()]);
      const sizes = [...own, ...made].flatMap(({ sizeBytes }) => sizeBytes ?? []);
      return { bytes: sizes.reduce((sum, bytes) => sum + bytes, 0), count: sizes.length, complete: true };
    },
    collect: nothing,
  },
  {
    name: "unpacked images",
    unit: "images",
    one: "image",
    rule: "for cells of runc; what no process used for 30 days; unpacked again",
    async measure(machine) {
      const { unpacked } = await openEngine({ ...machine, looksOnly: true });
      return { ...(await unpacked.measure()), complete: true };
    },
    async collect(machine, options) {
      const { olderThanMs, nowMs, dryRun } = options;
      const { unpacked } = await openEngine(machine);
      const { letGo, bytes } = await unpacked.letGo({
        usedBefore: nowMs - (olderThanMs ?? DEFAULT_KEEP.days * DAY_MS),
        dryRun,
      });
      const why = `${ageText(options)}; the image itself stays`;
      return letGo.map((id, at) => ({ what: id, bytes: at === 0 ? bytes : null, why }));
    },
  },
  {
    name: "roots",
    unit: "roots",
    one: "root",
    rule: "images as workers with a writable root begin with them; what none used for 30 days; made again",
    async measure(machine) {
      return { ...(await rootTrees(machine).measure()), complete: true };
    },
    async collect(machine, options) {
      const usedBefore = options.nowMs - (options.olderThanMs ?? DEFAULT_KEEP.days * DAY_MS);
      const gone = await rootTrees(machine).letGo({ usedBefore, dryRun: options.dryRun });
      return gone.map(({ image, bytes }) => ({ what: image, bytes, why: ageText(options) }));
    },
  },
  {
    name: "other",
    unit: "entries",
    one: "entry",
    rule: "the gate, keys and records of Corral; never",
    measure: ({ stateDir }, signal) => measuredEntries(stateDir, OTHER, signal),
    collect: nothing,
  },
];

/** What no other kind is. */
const OTHER = /^(?!(?:runs|fleets|changes|transcripts|snapshots|audit|live|git|compiled|environments|roots|runc)$)/;

function rootTrees({ stateDir }: MachinePlace): RootTrees {
  const { roots, live } = statePaths(stateDir);
  return new RootTrees(roots, live);
}

/** For a directory whose entries Corral makes again when it needs them. */
function madeAgain(place: "compiled" | "sharedNames"): Pick<StoredKind, "measure" | "collect"> {
  const dirOf = ({ stateDir }: MachinePlace): string => statePaths(stateDir)[place];
  return {
    measure: (machine, signal) => measuredEntries(dirOf(machine), ANYTHING, signal),
    collect: async (machine, options) => await removeOld(await stateEntries(dirOf(machine), ANYTHING), options),
  };
}

async function measuredEntries(dir: string, fits: RegExp, signal: AbortSignal) {
  const entries = await stateEntries(dir, fits);
  const paths = entries.map(({ path }) => path);
  return { ...(await measured(paths, signal)), count: entries.length };
}

async function snapshotStores(stateDir: string): Promise<{ path: string; store: SnapshotStore }[]> {
  const { snapshots, live } = statePaths(stateDir);
  const projects = await stateEntries(snapshots, PROJECT);
  return projects.map(({ path }) => ({ path, store: new SnapshotStore(path, live) }));
}

/** What a session goes on from stays on the disk until it ends, also if its snapshot goes. */
async function collectSnapshots({ stateDir }: MachinePlace, options: CollectOptions): Promise<readonly Removed[]> {
  const { olderThanMs, nowMs, dryRun } = options;
  const before = nowMs - (olderThanMs ?? DEFAULT_KEEP.days * DAY_MS);
  const isOld = ({ name, createdAt }: SnapshotRecord): boolean =>
    (name === null || olderThanMs !== null) && Date.parse(createdAt) < before;
  const stores = await snapshotStores(stateDir);
  const gone = stores.map(async ({ store }) =>
    dryRun ? (await store.list()).filter(isOld) : await store.remove(isOld),
  );
  const why = olderThanMs === null ? `taken ${DEFAULT_KEEP.days} days ago` : ageText(options);
  return (await Promise.all(gone)).flat().map(({ id, name }) => ({ what: name ?? id, bytes: null, why }));
}

/** A question goes before its end: without one it would seem to wait. */
async function collectQuestions({ stateDir }: MachinePlace, options: CollectOptions): Promise<readonly Removed[]> {
  const old: StateEntry[] = [];
  for (const { path } of await stateEntries(statePaths(stateDir).inbox, PROJECT)) {
    const age = options.olderThanMs ?? DEFAULT_KEEP.days * DAY_MS;
    const files = await stateEntries(path, /^[0-9a-f]{12}\.(question|end)$/);
    const questions = new Map(files.map((file) => [file.name, file]));
    for (const end of files.filter(
      ({ name, modifiedMs }) => name.endsWith(".end") && modifiedMs < options.nowMs - age,
    )) {
      const question = questions.get(end.name.replace(/end$/, "question"));
      if (question !== undefined) old.push(question);
      old.push(end);
    }
  }
  return await removeOld(old, options);
}

/** What a fleet that has not ended may still need stays. */
async function collectFailedChanges(machine: MachinePlace, options: CollectOptions): Promise<readonly Removed[]> {
  const { stateDir, engineEnv } = machine;
  const { olderThanMs, nowMs, dryRun } = options;
  const before = nowMs - (olderThanMs ?? DEFAULT_KEEP.days * DAY_MS);
  const removed: Removed[] = [];
  const store = changesetStore(stateDir);
  const old = (await store.list()).filter(
    (one) => one.ok && !one.applying && isOfFailedRun(one.state) && Date.parse(one.state.createdAt) < before,
  );
  if (old.length === 0) return [];
  await using changesets = await Changesets.open(stateDir, engineEnv);
  for (const { id } of old) {
    const { bytes } = await measured([store.dirOf(id)], AbortSignal.timeout(LOOK_MS));
    try {
      if (!dryRun) await changesets.discard(id);
    } catch (error) {
      if (error instanceof RequestError) continue;
      throw error;
    }
    const why = olderThanMs === null ? "of a run that failed 30 days ago" : ageText(options);
    removed.push({ what: id, bytes, why });
  }
  return removed;
}

async function removeOld(entries: readonly StateEntry[], options: CollectOptions): Promise<Removed[]> {
  const { olderThanMs, nowMs, dryRun } = options;
  const age = olderThanMs ?? DEFAULT_KEEP.days * DAY_MS;
  const removed: Removed[] = [];
  for (const entry of entries.filter(({ modifiedMs }) => modifiedMs < nowMs - age)) {
    // The contents of a folder are read before it is removed.
    const { bytes } = await measured([entry.path], AbortSignal.timeout(LOOK_MS));
    if (dryRun || (await removeStateEntry(entry))) removed.push({ what: entry.name, bytes, why: ageText(options) });
  }
  return removed;
}

const LOOK_MS = 5000;

function ageText({ olderThanMs }: CollectOptions): string {
  return olderThanMs === null ? `not used for ${DEFAULT_KEEP.days} days` : "older than --older-than";
}

/** Their results are the user's: nothing is removed of them that was not asked for. */
async function collectFleets({ stateDir }: { stateDir: string }, options: CollectOptions): Promise<Removed[]> {
  const { olderThanMs, nowMs, dryRun } = options;
  if (olderThanMs === null) return [];
  const removed: Removed[] = [];
  for (const { path } of await stateEntries(join(stateDir, "fleets"), PROJECT)) {
    if ((await stateEntries(path, /^fleets\.db$/)).length === 0) continue;
    await using store = await openFleetStoreAt(join(path, "fleets.db"));
    const old = (await store.list(Number.MAX_SAFE_INTEGER)).filter(
      ({ endedAt, state }) => state !== "pending" && endedAt !== null && Date.parse(endedAt) < nowMs - olderThanMs,
    );
    for (const { id } of old)
      if (dryRun || (await store.forget(id))) removed.push({ what: id, bytes: null, why: ageText(options) });
    if (!dryRun && old.length > 0) await store.shrink();
  }
  return removed;
}

async function collectDead(
  machine: Parameters<StoredKind["collect"]>[0],
  { dryRun }: CollectOptions,
): Promise<Removed[]> {
  const why = "its process is dead";
  const as = (what: string): Removed => ({ what, bytes: null, why });
  if (!dryRun) {
    const { cells, volumes, directories } = await reapCells(machine);
    const names = [...cells.map((run) => `container of run ${run}`), ...volumes.map((name) => `volume ${name}`)];
    return [...names, ...directories.map((name) => `directory ${name}`)].map(as);
  }
  const dead = (await listCells(machine)).filter(({ ownerAlive }) => !ownerAlive);
  const directories = await deadOwnerDirs(statePaths(machine.stateDir).live, currentOwner());
  return [...dead.map(({ run }) => `container of run ${run}`), ...directories.map((name) => `directory ${name}`)].map(
    as,
  );
}

/** One kind of what Corral keeps, as it was measured. `trouble`: why it is not known, e.g. because no Engine answers. */
export interface MeasuredKind extends Pick<StoredKind, "name" | "unit" | "one" | "rule"> {
  readonly measured: Measured | null;
  readonly trouble: string | null;
}

/** What was removed of one kind. `trouble`: why not all of it that may go. */
export interface CollectedKind extends Pick<StoredKind, "name" | "unit" | "one" | "rule"> {
  readonly removed: readonly Removed[];
  /** How many there are that are never removed here. */
  readonly stays: number;
  readonly trouble: string | null;
}

/** All kinds together; what was not measured by then is not complete. */
const MEASURE_MS = 20_000;

/** What all of Corral's state on this machine uses, each kind by itself. Follows no links. */
export async function measureState(machine: MachinePlace): Promise<MeasuredKind[]> {
  const signal = AbortSignal.timeout(MEASURE_MS);
  const kinds: MeasuredKind[] = [];
  for (const { name, unit, one, rule, measure } of STORED_KINDS) {
    const { value, trouble } = await unlessTrouble(() => measure(machine, signal));
    kinds.push({ name, unit, one, rule, measured: value, trouble });
  }
  return kinds;
}

/** Removes what may go of each kind. What one kind meets does not stop the others. Safe beside runs and other collectors. */
export async function collectState(
  machine: MachinePlace,
  { olderThanMs = null, dryRun = false }: Partial<Omit<CollectOptions, "nowMs">> = {},
): Promise<CollectedKind[]> {
  const options = { olderThanMs, dryRun, nowMs: Date.now() };
  const kinds: CollectedKind[] = [];
  for (const { name, unit, one, rule, collect, staying } of STORED_KINDS) {
    const { value, trouble } = await unlessTrouble(() => collect(machine, options));
    kinds.push({ name, unit, one, rule, removed: value ?? [], stays: (await staying?.(machine)) ?? 0, trouble });
  }
  return kinds;
}

async function unlessTrouble<Value>(
  act: () => Promise<Value>,
): Promise<{ value: Value | null; trouble: string | null }> {
  try {
    return { value: await act(), trouble: null };
  } catch (error) {
    const isKnown = error instanceof EngineUnavailableError || error instanceof EngineTrouble || isOfSystem(error);
    if (!isKnown) throw error;
    return { value: null, trouble: (error as Error).message };
  }
}

function isOfSystem(error: unknown): boolean {
  return error instanceof Error && "syscall" in error;
}
