import type { KeyObject } from "node:crypto";
import type { FileHandle } from "node:fs/promises";
import type { TrailPaths } from "../state/state-dir.ts";
import {
  GENESIS,
  isRepaired,
  linesOf,
  openTrailToRead,
  type ReadHead,
  readTrailHead,
  type SealedRecord,
  type TrailLine,
  unsealed,
} from "./seal.ts";

/** A remark on a line of a trail. Line 0 is the trail as a whole. */
export interface Remark {
  readonly line: number;
  readonly what: string;
}

export interface Verdict {
  readonly ok: boolean;
  /** The number of valid records. */
  readonly records: number;
  /** ISO 8601, UTC. Null if there are no records. */
  readonly firstAt: string | null;
  readonly lastAt: string | null;
  /** Signs of changed, removed, inserted or moved records. At most {@link MAX_REMARKS}; the last counts the others. */
  readonly problems: readonly Remark[];
  /** Harmless irregularities, as a crash leaves them. */
  readonly notes: readonly Remark[];
}

export const MAX_REMARKS = 100;

/** Verifies the seals of a whole trail, which is read in chunks. Null if there is no trail. */
export async function verifyTrail(place: TrailPaths, key: KeyObject): Promise<Verdict | null> {
  // The head is read first: a concurrent append can only make the trail longer than the head says.
  const head = readTrailHead(place.head, key);
  await using handle = await openTrailToRead(place.trail);
  if (handle === null && head === "absent") return null;
  const chain = new Chain(handle, head);
  const size = handle === null ? 0 : (await handle.stat()).size;
  for await (const lines of handle === null ? [] : linesOf(handle, 0, size)) {
    for (const line of lines) await chain.see(line, line.bytes === null ? null : unsealed(key, line.bytes));
  }
  return chain.verdict(size);
}

/** Consecutive lines that are not records. */
interface Junk {
  readonly first: TrailLine;
  readonly start: number;
  lines: number;
  terminated: boolean;
}

/** The chain as far as it has been read. */
class Chain {
  readonly #handle: FileHandle | null;
  readonly #head: ReadHead;
  readonly #problems = new Remarks();
  readonly #notes = new Remarks();
  #records = 0;
  #firstAt: string | null = null;
  #lastAt: string | null = null;
  #lines = 0;
  /** The number of the next record, and the hash of the one before it. */
  #next = 1;
  #hash = GENESIS;
  #junk: Junk | null = null;
  #hashAtHead: string | null = null;

  constructor(handle: FileHandle | null, head: ReadHead) {
    this.#handle = handle;
    this.#head = head;
    if (typeof head === "object" && head.seq === 0) this.#hashAtHead = GENESIS;
  }

  async see(line: TrailLine, record: SealedRecord | null): Promise<void> {
    this.#lines = line.number;
    if (record === null) {
      this.#junk ??= { first: line, start: line.start, lines: 0, terminated: true };
      this.#junk.lines += 1;
      this.#junk.terminated = line.terminated;
      return;
    }
    const changed = this.#junk === null ? 0 : await this.#closeJunk(this.#junk, line, record);
    this.#place(line, record, changed);
    if (record.type === "repaired") this.#reportRepair(line, record);
    this.#records += 1;
    this.#firstAt ??= record.at;
    this.#lastAt = record.at;
    if (typeof this.#head === "object" && record.seq === this.#head.seq) this.#hashAtHead = record.hash;
  }

  /** Checks that this is the next record. `changed`: lines before it that may have been records. */
  #place({ number }: TrailLine, { seq, prev, hash }: SealedRecord, changed: number): void {
    const next = this.#next;
    if (seq < next) {
      this.#problems.add(number, `record ${seq} is out of order, or a duplicate`);
      return;
    }
    this.#next = seq + 1;
    const follows = prev === this.#hash;
    this.#hash = hash;
    if (seq === next && follows) return;
    if (seq === next) this.#problems.add(number, `record ${seq} does not follow from the record before it`);
    else if (seq > next + changed) {
      const missing = next === seq - 1 ? `record ${next} is` : `records ${next} to ${seq - 1} are`;
      this.#problems.add(number, `${missing} missing before this one`);
    }
  }

  /** Reports the junk before a record. Returns how many of its lines may have been records. */
  async #closeJunk(junk: Junk, { start }: TrailLine, record: SealedRecord): Promise<number> {
    this.#junk = null;
    if (this.#handle !== null && (await isRepaired(this.#handle, { start: junk.start, end: start }, record))) return 0;
    this.#reportJunk(junk);
    return junk.lines;
  }

  #reportJunk({ first, lines }: Junk): void {
    const more = lines === 1 ? "" : ` (and ${lines - 1} more after it)`;
    this.#problems.add(first.number, `${wordsFor(first.bytes)}${more}`);
  }

  #reportRepair({ number }: TrailLine, { what, bytes }: SealedRecord): void {
    if (what === "torn")
      this.#notes.add(
        number,
        `the ${bytes} bytes before this record are an incomplete line, as after a killed process or a full disk`,
      );
    else if (what === "foreign") this.#problems.add(number, `the ${bytes} bytes before this record are not records`);
    else if (what === "truncated")
      this.#problems.add(number, "records before this one were removed before it was written");
    else
      this.#problems.add(
        number,
        "the head was missing or changed when this record was written; records before it may have been removed",
      );
  }

  verdict(size: number): Verdict {
    this.#judgeEnd(size);
    const problems = this.#problems.list();
    return {
      ok: problems.length === 0,
      records: this.#records,
      firstAt: this.#firstAt,
      lastAt: this.#lastAt,
      problems,
      notes: this.#notes.list(),
    };
  }

  #judgeEnd(size: number): void {
    const head = this.#head;
    if (this.#junk !== null && this.#records === 0 && head === "broken") {
      this.#problems.add(0, "the records and the head were not sealed with this state directory's key");
      return;
    }
    if (head === "absent") this.#problems.add(0, "the head is missing; records at the end may have been removed");
    else if (head === "broken")
      this.#problems.add(
        0,
        "the head was changed, or not sealed with this key; records at the end may have been removed",
      );
    else this.#judgeHead(head, size);
    this.#judgeTail();
  }

  #judgeHead(head: Exclude<ReadHead, string>, size: number): void {
    const last = this.#next - 1;
    if (last < head.seq)
      this.#problems.add(
        this.#lines,
        `the trail is truncated: ${head.seq} records were written, and the last one here is ${last}`,
      );
    else if (this.#hashAtHead !== null && this.#hashAtHead !== head.hash)
      this.#problems.add(0, `record ${head.seq} is not the one that the head names`);
    // If there are other problems they explain the difference; otherwise only a line break is missing.
    else if (size < head.size && this.#problems.isEmpty)
      this.#problems.add(this.#lines, `the trail is truncated: it had ${head.size} bytes and has ${size}`);
    else if (last > head.seq && this.#junk === null)
      this.#notes.add(0, `${last - head.seq} records are newer than the head, as after a killed process`);
  }

  /** Judges the lines after the last record. */
  #judgeTail(): void {
    const junk = this.#junk;
    if (junk === null) return;
    const head = this.#head;
    const isTorn = typeof head === "object" && !junk.terminated && junk.lines === 1 && junk.start >= head.size;
    if (!isTorn) this.#reportJunk(junk);
    else
      this.#notes.add(
        junk.first.number,
        "the last line is incomplete, as after a killed process; the next record will note it",
      );
  }
}

/** A limited list of remarks, which counts those beyond the limit. */
class Remarks {
  readonly #kept: Remark[] = [];
  #more = 0;

  add(line: number, what: string): void {
    if (this.#kept.length < MAX_REMARKS - 1) this.#kept.push({ line, what });
    else this.#more += 1;
  }

  get isEmpty(): boolean {
    return this.#kept.length === 0;
  }

  list(): readonly Remark[] {
    return this.#more === 0 ? this.#kept : [...this.#kept, { line: 0, what: `and ${this.#more} more` }];
  }
}

/** Describes a line without a valid seal. */
function wordsFor(bytes: Buffer | null): string {
  const [, seq] = /^\{"seq":(\d{1,15}),/.exec(bytes?.subarray(0, 40).toString("latin1") ?? "") ?? [];
  return seq === undefined ? "this line is not a record" : `record ${seq} was changed`;
}
