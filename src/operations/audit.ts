import { type KeptTranscript, TranscriptFolder, type Transcripts } from "../agent/transcript.ts";
import { AUDIT_TYPES } from "../audit/records.ts";
import { auditKey, readTrailHead, recordsBack, recordsOf, type SealedRecord } from "../audit/seal.ts";
import { type Verdict, verifyTrail } from "../audit/verify.ts";
import { loadSealKey } from "../state/owner.ts";
import { projectPaths } from "../state/state-dir.ts";
import { present } from "../text/present.ts";
import { printableLine } from "../text/visible.ts";
import {
  chosenId,
  ENOUGH_CANDIDATES,
  LATEST,
  type Nameable,
  noneText,
  RequestError,
  unknownError,
} from "./request-error.ts";

/** A project, and where Corral keeps its data. Both paths are absolute; `projectDir` contains no symbolic link, and need not exist any more. */
export interface ProjectPlace {
  readonly stateDir: string;
  readonly projectDir: string;
}

/** A record must fit all fields that are there. */
export interface AuditFilter {
  /** Of this run, or of the tree of which it is the root: its id, a prefix of it, or `latest` for the newest root run. */
  readonly run?: string;
  /** One of `AUDIT_TYPES`. */
  readonly type?: string;
  /** Not before this time, in milliseconds since 1970. */
  readonly since?: number;
}

export interface AuditRecords {
  /** In the order of the trail: the oldest first. */
  readonly records: readonly SealedRecord[];
  /** How many lines are sealed records, whether or not they fit the filter. */
  readonly sealed: number;
  /** How many lines are not: `verifyAudit` says what is wrong. */
  readonly foreign: number;
}

/**
 * All records that fit, some at a time; a trail may be long. Reads what is there and checks each seal, not the order.
 *
 * @throws RequestError UNKNOWN_VALUE for a type that no record has; UNKNOWN_RUN, AMBIGUOUS_ID
 */
export async function* auditRecords(
  place: ProjectPlace,
  filter: AuditFilter = {},
): AsyncGenerator<AuditRecords, void, undefined> {
  const { trail, key } = await trailOf(place);
  const run = filter.run === undefined ? undefined : await meantRun(filter.run, recordsOf(trail, key));
  const fits = filterOf({ ...filter, ...present({ run }) });
  for await (const lines of recordsOf(trail, key)) {
    const sealed = lines.filter((line) => line !== null);
    yield { records: sealed.filter(fits), sealed: sealed.length, foreign: lines.length - sealed.length };
  }
}

/** The newest `limit` records that fit. @throws as `auditRecords` */
export async function newestAuditRecords(
  place: ProjectPlace,
  filter: AuditFilter,
  limit: number,
): Promise<AuditRecords> {
  let records: readonly SealedRecord[] = [];
  let [sealed, foreign] = [0, 0];
  for await (const some of auditRecords(place, filter)) {
    sealed += some.sealed;
    foreign += some.foreign;
    records = [...records, ...some.records].slice(-limit);
  }
  return { records, sealed, foreign };
}

export interface AuditPage {
  /** The newest first. */
  readonly records: readonly SealedRecord[];
  /** How many lines of what was read are no sealed records. */
  readonly foreign: number;
  /** Where the next page continues; null: there is nothing older. */
  readonly next: number | null;
}

/** Of a page that a filter leaves nearly empty. */
const MAX_PAGE_BYTES = 16 * 1024 ** 2;
/** Processes write their records a moment after the time that these have. */
const OUT_OF_ORDER_MS = 60_000;

/**
 * Records that fit, from the end of the trail or from `next` of another page. A page is read without what is older, so it may have fewer
 * than `limit` records although there are more. @throws as `auditRecords`
 */
export async function auditPage(
  place: ProjectPlace,
  filter: AuditFilter & { readonly run?: string },
  { limit, before }: { readonly limit: number; readonly before?: number },
): Promise<AuditPage> {
  const { trail, key } = await trailOf(place);
  const fits = filterOf(filter);
  const oldest = (filter.since ?? Number.NEGATIVE_INFINITY) - OUT_OF_ORDER_MS;
  const records: SealedRecord[] = [];
  let foreign = 0;
  let first: number | null = null;
  for await (const lines of recordsBack(trail, key, before)) {
    for (const { start, record } of lines) {
      first ??= start;
      if (record === null) foreign += 1;
      else if (Date.parse(record.at) < oldest) return { records, foreign, next: null };
      else if (fits(record)) records.push(record);
      const isEnough = records.length >= limit || first - start > MAX_PAGE_BYTES;
      if (isEnough) return { records, foreign, next: start === 0 ? null : start };
    }
  }
  return { records, foreign, next: null };
}

/** Checks every record's seal and its place in the chain. Null if there is no trail. */
export async function verifyAudit(place: ProjectPlace): Promise<Verdict | null> {
  const { trail, key } = await trailOf(place);
  return await verifyTrail(trail, key);
}

/** The number and the hash of the newest record: who has them can show later that nothing before was changed. Null: there is no intact trail. */
export async function trailEnd(place: ProjectPlace): Promise<{ readonly seq: number; readonly hash: string } | null> {
  const { trail, key } = await trailOf(place);
  const head = readTrailHead(trail.head, key);
  return typeof head === "string" ? null : { seq: head.seq, hash: head.hash };
}

async function trailOf({ stateDir, projectDir }: ProjectPlace) {
  return { trail: projectPaths(stateDir, projectDir).trail, key: auditKey(await loadSealKey(stateDir), projectDir) };
}

const WHOLE_ID = /^[0-9a-f]{12}$/;

/** A whole id need not be looked up: nothing may be recorded of it. */
async function meantRun(asked: string, trail: ReturnType<typeof recordsOf>): Promise<string> {
  if (WHOLE_ID.test(asked)) return asked;
  // The oldest first; few are kept, since a trail may be long.
  const found = new Map<string, Nameable>();
  for await (const lines of trail) {
    for (const record of lines) {
      const id = record?.run;
      if (record === null || id === undefined || found.has(id)) continue;
      const fits = asked === LATEST ? record.type === "run_requested" && record.root === id : id.startsWith(asked);
      if (!fits) continue;
      found.set(id, { id, about: `${record.worker ?? "no worker"}, ${record.at}` });
      const [oldest = ""] = found.keys();
      if (found.size > ENOUGH_CANDIDATES) found.delete(oldest);
    }
  }
  const unknown = () => new RequestError("UNKNOWN_RUN", asked, `${noneText("run", asked)} in the trail`);
  return chosenId(asked, [...found.values()].toReversed(), unknown);
}

function filterOf({ run, type, since }: AuditFilter): (record: SealedRecord) => boolean {
  const types: readonly string[] = AUDIT_TYPES;
  if (type !== undefined && !types.includes(type)) throw unknownError("UNKNOWN_VALUE", "type of record", type, types);
  return (record) =>
    (run === undefined || record.run === run || record.root === run) &&
    (type === undefined || record.type === type) &&
    (since === undefined || Date.parse(record.at) >= since);
}

/** The conversations of the project's agents, the newest first. */
export async function listTranscripts({ stateDir, projectDir }: ProjectPlace): Promise<KeptTranscript[]> {
  return await new TranscriptFolder(stateDir, projectDir).list();
}

/**
 * The conversation of one run: lines of JSON, as `model: script/FILE` reads them. `asked`: its id, a prefix of it, or `latest`.
 *
 * @throws RequestError UNKNOWN_TRANSCRIPT, AMBIGUOUS_ID
 */
export async function readTranscript({ stateDir, projectDir }: ProjectPlace, asked: string): Promise<string> {
  const folder = new TranscriptFolder(stateDir, projectDir);
  const unknown = () =>
    new RequestError("UNKNOWN_TRANSCRIPT", asked, `there is no transcript of a run ${printableLine(asked, 80)}`);
  const lines = await folder.read(await transcriptId(asked, folder, unknown));
  if (lines === null) throw unknown();
  return lines;
}

/** The run whose transcript a user means. @throws RequestError AMBIGUOUS_ID, and `unknown` if there is none */
export async function transcriptId(
  asked: string,
  transcripts: Pick<Transcripts, "list">,
  unknown: () => RequestError,
): Promise<string> {
  const kept = await transcripts.list();
  const known = kept.map(({ run, modifiedMs }) => ({ id: run, about: new Date(modifiedMs).toISOString() }));
  return chosenId(asked, known, unknown);
}
