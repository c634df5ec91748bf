import { setTimeout as sleep } from "node:timers/promises";
import { archiveOf, GitRefusal } from "../git/tree-archive.ts";
import {
  keptPieces,
  projectFolders,
  type RunFolder,
  removeRunFolder,
  runFolders,
  type StreamName,
  serviceDir,
} from "../history/recording.ts";
import { type RunRecord, readBegin, readRun } from "../history/run-record.ts";
import { stopLiveRun } from "../state/live-dir.ts";
import { currentOwner, lockOwner } from "../state/owner.ts";
import { projectPaths, statePaths } from "../state/state-dir.ts";
import type { ProjectPlace } from "./audit.ts";
import { chosenId, LATEST, noneText, RequestError } from "./request-error.ts";

/** Which runs are listed. What is absent does not filter. */
export interface RunFilter {
  readonly worker?: string;
  /** As in a record: that of a result, `running`, `interrupted` or `closed`. */
  readonly status?: string;
  /** At most so many, the newest; absent: 50. */
  readonly limit?: number;
  /** Of every project of the state directory. */
  readonly allProjects?: boolean;
}

export interface ListedRuns {
  /** The newest first. */
  readonly runs: readonly RunRecord[];
  /** Folders whose record cannot be read. */
  readonly unreadable: number;
}

/** `ended`: it had ended before, with this status; `stopped`: it ended now; `asked`: its process has not ended it in time. */
export interface StoppedRun {
  readonly run: string;
  readonly outcome: "ended" | "stopped" | "asked";
  readonly status: string;
}

export interface RunsToRemove {
  /** Ids, prefixes of them, or `latest`. */
  readonly ids?: readonly string[];
  /** All that began before, in milliseconds since 1970. */
  readonly before?: number;
  readonly all?: boolean;
}

const DEFAULT_LIMIT = 50;
/** Records that are read at once: one after another, each small file waits behind all that the process does on the disk. */
const AT_ONCE = 16;
/** How long a run may take to end after it was stopped: its container is removed. */
const STOP_MS = 15_000;
const LOOK_MS = 50;
/** Candidates that are described in the error of an ambiguous prefix; the others are known by their time. */
const MAX_DESCRIBED = 11;

/** The runs of the project; items of fleets are in the journals of their fleets. */
export async function listRuns(place: ProjectPlace, filter: RunFilter = {}): Promise<ListedRuns> {
  const { worker, status, limit = DEFAULT_LIMIT, allProjects = false } = filter;
  const { isDead } = lockOwner();
  const runs: RunRecord[] = [];
  let unreadable = 0;
  const folders = allProjects ? await allFolders(place) : await ownFolders(place);
  for (let at = 0; at < folders.length && runs.length < limit; at += AT_ONCE) {
    const some = folders.slice(at, at + AT_ONCE);
    for (const record of await Promise.all(some.map(({ dir }) => readRun(dir, isDead)))) {
      if (runs.length >= limit) break;
      if (record === null) unreadable += 1;
      else if ((worker ?? record.worker) === record.worker && (status ?? record.status) === record.status)
        runs.push(record);
    }
  }
  return { runs, unreadable };
}

/** `asked`: its id, a prefix of it, or `latest`. @throws RequestError UNKNOWN_RUN, AMBIGUOUS_ID */
export async function showRun(place: ProjectPlace, asked: string): Promise<RunRecord> {
  return (await foundRun(place, asked)).record;
}

/**
 * Stops a run of any process of this user: a file tells the process, which ends the run itself. Its status becomes
 * `cancelled`, and what it wrote in views waits.
 *
 * @throws RequestError UNKNOWN_RUN, AMBIGUOUS_ID
 */
export async function stopRun(place: ProjectPlace, asked: string): Promise<StoppedRun> {
  const { dir, record } = await foundRun(place, asked);
  const { id: run, status } = record;
  if (status !== "running") return { run, outcome: "ended", status };
  await stopLiveRun(statePaths(place.stateDir).live, currentOwner(), run);
  const { isDead } = lockOwner();
  const until = performance.now() + STOP_MS;
  for (;;) {
    const now = (await readRun(dir, isDead))?.status ?? status;
    if (now !== "running") return { run, outcome: "stopped", status: now };
    if (performance.now() >= until) return { run, outcome: "asked", status: now };
    await sleep(LOOK_MS);
  }
}

/**
 * The ids of what {@link removeRuns} would remove. Of several, runs that are not over are left out.
 *
 * @throws RequestError RUN_NOT_ENDED for one in `ids`, UNKNOWN_RUN, AMBIGUOUS_ID
 */
export async function runsToRemove(place: ProjectPlace, which: RunsToRemove): Promise<string[]> {
  return (await foldersToRemove(place, which)).map(({ run }) => run);
}

/** Removes records of runs that have ended, and answers with their ids. Nothing is removed if it throws. @throws as `runsToRemove` */
export async function removeRuns(place: ProjectPlace, which: RunsToRemove): Promise<string[]> {
  const removed: string[] = [];
  for (const { run, dir } of await foldersToRemove(place, which)) if (await removeRunFolder(dir)) removed.push(run);
  return removed;
}

async function foldersToRemove(
  place: ProjectPlace,
  { ids = [], before, all = false }: RunsToRemove,
): Promise<RunFolder[]> {
  const chosen = new Map<string, RunFolder>();
  for (const asked of ids) {
    const { record, ...folder } = await foundRun(place, asked);
    const message = `run ${record.id} is running; only a run that has ended can be removed`;
    if (record.status === "running") throw new RequestError("RUN_NOT_ENDED", asked, message);
    chosen.set(folder.dir, folder);
  }
  const { isDead } = lockOwner();
  for (const folder of all || before !== undefined ? await ownFolders(place) : []) {
    if (before !== undefined && folder.beganMs >= before) continue;
    if ((await readRun(folder.dir, isDead))?.status !== "running") chosen.set(folder.dir, folder);
  }
  return [...chosen.values()];
}

/** A run with its folder, first among those of the project. @throws RequestError UNKNOWN_RUN, AMBIGUOUS_ID */
export async function foundRun(
  place: ProjectPlace,
  asked: string,
): Promise<RunFolder & { readonly record: RunRecord }> {
  const unknown = () => new RequestError("UNKNOWN_RUN", asked, noneText("run", asked));
  const own = await ownFolders(place);
  const isOwn = asked === LATEST || own.some(({ run }) => run.startsWith(asked));
  const known = isOwn ? own : await allFolders(place);
  const fitting = asked === LATEST ? known.slice(0, 1) : known.filter(({ run }) => run.startsWith(asked));
  const described = fitting.slice(0, MAX_DESCRIBED).map(async ({ run, dir, beganMs }) => {
    const worker = fitting.length > 1 ? `${(await readBegin(dir))?.worker ?? "cannot be read"}, ` : "";
    return { id: run, about: `${worker}${new Date(beganMs).toISOString()}` };
  });
  const id = chosenId(asked, await Promise.all(described), unknown);
  const folder = fitting.find(({ run }) => run === id);
  const record = folder === undefined ? null : await readRun(folder.dir, lockOwner().isDead);
  if (folder === undefined || record === null) throw unknown();
  return { ...folder, record };
}

async function ownFolders({ stateDir, projectDir }: ProjectPlace): Promise<RunFolder[]> {
  return await runFolders(projectPaths(stateDir, projectDir).runs);
}

/** The newest first. */
async function allFolders({ stateDir }: Pick<ProjectPlace, "stateDir">): Promise<RunFolder[]> {
  const folders: RunFolder[] = [];
  for (const project of await projectFolders(statePaths(stateDir).runs)) folders.push(...(await runFolders(project)));
  return folders.toSorted((a, b) => b.beganMs - a.beganMs);
}

/** A file to attach, which is removed when this is disposed. */
export interface AttachedTree extends AsyncDisposable {
  /** None if it was cancelled, as the run will be. */
  readonly attachments: readonly { readonly path: string; readonly name: string }[];
}

/**
 * The files of a commit as a tar archive to attach, as `name`. The repository is that of `cwd`.
 *
 * @throws RequestError ATTACHMENT
 */
export async function attachedTree(
  revision: string,
  name: string,
  where: { readonly cwd: string; readonly signal: AbortSignal },
): Promise<AttachedTree> {
  try {
    const archive = await archiveOf(revision, where);
    return {
      attachments: [{ path: archive.path, name }],
      [Symbol.asyncDispose]: async () => await archive[Symbol.asyncDispose](),
    };
  } catch (error) {
    if (where.signal.aborted) return { attachments: [], [Symbol.asyncDispose]: async () => {} };
    if (!(error instanceof GitRefusal)) throw error;
    throw new RequestError("ATTACHMENT", revision, `cannot attach the files of a commit: ${error.message}`);
  }
}

interface OutputOptions {
  readonly streams: readonly StreamName[];
  /** What one of its services printed; absent: what the run itself did. */
  readonly service?: string | undefined;
  /** Only the last lines of each stream; absent: all that is kept. */
  readonly lines?: number;
  /** Until the run has ended. */
  readonly follow?: boolean;
  readonly signal?: AbortSignal;
}

/** A part of what a run printed, as it printed it. */
export interface OutputPiece {
  readonly stream: StreamName;
  readonly bytes: Buffer;
  /** How many bytes before it are not kept. */
  readonly missingBytes: number;
}

const FOLLOW_MS = 200;
const LINE_BREAK = 0x0a;

/**
 * What a run printed, one stream after the other. Of a long stream the first 512 KiB and at least the last 512 KiB are kept.
 *
 * @throws RequestError UNKNOWN_RUN, AMBIGUOUS_ID, before the first piece
 */
export async function runOutput(
  place: ProjectPlace,
  asked: string,
  { streams, service, lines, follow = false, signal }: OutputOptions,
): Promise<AsyncGenerator<OutputPiece, void, undefined>> {
  const { dir: runDir } = await foundRun(place, asked);
  const { isDead } = lockOwner();
  if (service !== undefined) await refuseUnknownService(runDir, service);
  const dir = service === undefined ? runDir : serviceDir(runDir, service);
  return (async function* () {
    const at: Record<StreamName, number> = { stdout: 0, stderr: 0 };
    for (let only = lines; ; only = undefined) {
      // Looked at before the pieces are read: what was written before the end is not missed.
      const isOver = (await readRun(runDir, isDead))?.status !== "running";
      for (const stream of streams) {
        const pieces = only === undefined ? piecesFrom(dir, stream, at[stream]) : lastLines(dir, stream, only);
        for await (const { end, ...piece } of pieces) {
          at[stream] = end;
          yield piece;
        }
      }
      if (!follow || isOver || signal?.aborted) return;
      await sleep(FOLLOW_MS);
    }
  })();
}

async function refuseUnknownService(dir: string, service: string): Promise<void> {
  const run = await readRun(dir, () => false);
  const known = (run?.calls ?? []).flatMap((call) => call.service ?? []);
  if (known.includes(service)) return;
  const there = known.length === 0 ? "it had none" : `it had: ${known.join(", ")}`;
  throw new RequestError(
    "UNKNOWN_VALUE",
    service,
    `run ${run?.id} had no service ${JSON.stringify(service)}; ${there}`,
  );
}

type Placed = OutputPiece & {
  /** Of the piece in the stream. */
  readonly end: number;
};

async function* piecesFrom(dir: string, stream: StreamName, from: number): AsyncGenerator<Placed, void, undefined> {
  let at = from;
  for await (const { offset, bytes } of keptPieces(dir, stream, from)) {
    const end = offset + bytes.length;
    yield { stream, bytes, missingBytes: offset - at, end };
    at = end;
  }
}

/** Everything that is kept fits in memory. */
async function* lastLines(dir: string, stream: StreamName, lines: number): AsyncGenerator<Placed, void, undefined> {
  const pieces = await Array.fromAsync(piecesFrom(dir, stream, 0));
  const chosen: Placed[] = [];
  let left = lines;
  for (const piece of pieces.toReversed()) {
    const { bytes } = piece;
    // A line break at the very end begins no line.
    let at = bytes.length - (chosen.length === 0 && bytes.at(-1) === LINE_BREAK ? 1 : 0);
    for (; left > 0 && at >= 0; left -= at < 0 ? 0 : 1) at = at === 0 ? -1 : bytes.lastIndexOf(LINE_BREAK, at - 1);
    chosen.unshift(at < 0 ? piece : { ...piece, bytes: bytes.subarray(at + 1), missingBytes: 0 });
    if (at >= 0) break;
  }
  yield* chosen;
}
