import { recordsOf } from "../audit/read.ts";
import { AUDIT_TYPES } from "../audit/records.ts";
import { auditKey, type SealedRecord } from "../audit/seal.ts";
import { type Verdict, verifyTrail } from "../audit/verify.ts";
import { loadSealKey } from "../state/owner.ts";
import { projectPaths } from "../state/state-paths.ts";
import { unknownError } from "./request-error.ts";

/** A project, and where Corral keeps its data. Both paths are absolute; `projectDir` contains no symbolic link, and need not exist any more. */
export interface ProjectPlace {
  readonly stateDir: string;
  readonly projectDir: string;
}

/** A record must fit all fields that are there. */
export interface AuditFilter {
  /** Of this run, or of the tree of which it is the root. */
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
 * @throws RequestError UNKNOWN_VALUE for a type that no record has
 */
export async function* auditRecords(
  place: ProjectPlace,
  filter: AuditFilter = {},
): AsyncGenerator<AuditRecords, void, undefined> {
  const fits = filterOf(filter);
  const { trail, key } = await trailOf(place);
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

/** Checks every record's seal and its place in the chain. Null if there is no trail. */
export async function verifyAudit(place: ProjectPlace): Promise<Verdict | null> {
  const { trail, key } = await trailOf(place);
  return await verifyTrail(trail, key);
}

async function trailOf({ stateDir, projectDir }: ProjectPlace) {
  return { trail: projectPaths(stateDir, projectDir).trail, key: auditKey(await loadSealKey(stateDir), projectDir) };
}

function filterOf({ run, type, since }: AuditFilter): (record: SealedRecord) => boolean {
  const types: readonly string[] = AUDIT_TYPES;
  if (type !== undefined && !types.includes(type)) throw unknownError("UNKNOWN_VALUE", "type of record", type, types);
  return (record) =>
    (run === undefined || record.run === run || record.root === run) &&
    (type === undefined || record.type === type) &&
    (since === undefined || Date.parse(record.at) >= since);
}
