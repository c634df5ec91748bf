import { appendedLines, appendLine } from "../../state/live-dir.ts";
import { causeOf, type ItemStreams, isFailure } from "../model/item.ts";
import {
  type Claim,
  type FleetQueue,
  type IntendedSettlement,
  type ItemCounts,
  MAX_CLAIM,
  type NewAttempt,
  QueueError,
  type Settlement,
  type Taken,
  type Urgency,
} from "../model/queue.ts";
import type { GroupCommit } from "../stored/group-commit.ts";
import { boundedResult, encodedStreams, MAX_FLEET_BYTES, msOf } from "../stored/rows.ts";
import { cancelFleetItems, type Scope, type Statements } from "./connection.ts";
import { countsOf } from "./fleets.ts";
import type { Write } from "./writes.ts";

/** How much the streams of one fleet may still take. */
export class StreamBudget {
  #bytes: number;

  private constructor(bytes: number) {
    this.#bytes = bytes;
  }

  static async of(db: Statements, fleet: number): Promise<StreamBudget> {
    const [row] = await db.query<{ bytes: number }>(
      `SELECT coalesce(sum(coalesce(length(stdout), 0) + coalesce(length(stderr), 0)), 0)::bigint AS bytes
       FROM corral.streams WHERE fleet = $1`,
      [fleet],
    );
    return new StreamBudget(row?.bytes ?? 0);
  }

  /** `output`: of the result, if it is whole. */
  encoded(streams: ItemStreams, output: unknown): readonly [Buffer | null, Buffer | null] {
    const [out, err] = encodedStreams(streams, output, this.#bytes >= MAX_FLEET_BYTES);
    this.#bytes += (out?.length ?? 0) + (err?.length ?? 0);
    return [out, err];
  }
}

interface PostgresQueueOptions {
  readonly scope: Scope;
  readonly writes: GroupCommit<Write>;
  /** The fleet's number in the database. */
  readonly fleet: number;
  readonly budget: StreamBudget;
  readonly begun: BegunLog | null;
}

/** The queue of a fleet, for the process that owns it. */
export class PostgresQueue implements FleetQueue {
  readonly #options: PostgresQueueOptions;
  /** Items whose streams were recorded with their intents. */
  readonly #printed = new Set<number>();

  constructor(options: PostgresQueueOptions) {
    this.#options = options;
  }

  async claim(count: number, newAttempt: () => NewAttempt, urgency?: Urgency): Promise<Claim> {
    const { writes, fleet } = this.#options;
    const attempts = Array.from({ length: Math.max(0, Math.min(count, MAX_CLAIM)) }, newAttempt);
    return await writes.add<Claim>({ kind: "claim", fleet, attempts }, urgency);
  }

  async begin(index: number, attempt: number, { result, cacheKey, streams }: IntendedSettlement): Promise<Taken> {
    const { writes, fleet, budget } = this.#options;
    const one = { index, attempt, run: result.run ?? "-" };
    await this.#options.begun?.check(one);
    const { json, isWhole } = boundedResult(result);
    const [stdout, stderr] = streams === null ? NOTHING : budget.encoded(streams, isWhole ? result.output : null);
    const isPrinted = streams !== null;
    const begun = { json, cacheKey: isWhole ? cacheKey : null, isPrinted, stdout, stderr };
    const taken = await writes.add<Taken>({ kind: "begin", fleet, index, attempt, begun });
    if (taken.ok && isPrinted) this.#printed.add(index);
    if (taken.ok) await this.#options.begun?.add(one);
    return taken;
  }

  async settle(
    index: number,
    attempt: number,
    { result, cacheKey, streams }: Settlement,
    urgency?: Urgency,
  ): Promise<Taken> {
    const { writes, fleet, budget } = this.#options;
    const { json, isWhole } = boundedResult(result);
    const isPrinted = this.#printed.delete(index);
    const [stdout, stderr] =
      streams === null || isPrinted ? NOTHING : budget.encoded(streams, isWhole ? result.output : null);
    const ending = {
      run: result.run,
      status: result.status,
      code: result.error?.code ?? "",
      failed: isFailure(result.status) ? 1 : 0,
      endedAt: msOf(result.endedAt),
      durationMs: result.durationMs,
      // A cached result must be the same as a run's result, so a cut one is not used.
      cacheKey: isWhole ? cacheKey : null,
      cause: causeOf(result),
      machine: result.machine ?? null,
      json,
      stdout,
      stderr,
    };
    return await writes.add<Taken>({ kind: "settle", fleet, index, attempt, ending }, urgency);
  }

  async requeue(
    index: number,
    attempt: number,
    notBeforeMs: number,
    why: "failed" | "withdrawn" = "failed",
  ): Promise<Taken> {
    const { writes, fleet, scope } = this.#options;
    // The caller's clock may differ from the database's.
    const waitMs = notBeforeMs - (scope.now() ?? Date.now());
    return await writes.add<Taken>({
      kind: "requeue",
      fleet,
      index,
      attempt,
      waitMs,
      isWithdrawn: why === "withdrawn",
    });
  }

  async counts(): Promise<ItemCounts> {
    const { scope, fleet } = this.#options;
    return await countsOf(scope, fleet);
  }

  async cancelQueued(why: string): Promise<number> {
    const { scope, writes, fleet } = this.#options;
    await writes.flushed();
    return await cancelFleetItems(scope, fleet, why);
  }
}

/** A run that did not print. */
const NOTHING = [null, null] as const;

/** A million items with one attempt each fit. */
const MAX_BYTES = 64 * 1024 ** 2;

interface Begun {
  readonly index: number;
  readonly attempt: number;
  readonly run: string;
}

/**
 * Which attempts of a fleet have begun to change files of this machine, in a file beside its state: a database that was restored to an
 * earlier state does not know them, and would run their items again. One line for each, written when the database has it, and before the
 * first change.
 */
export class BegunLog {
  readonly #path: string;
  readonly #fleet: string;
  #begun: Map<number, Begun> | null = null;

  constructor(path: string, fleet: string) {
    this.#path = path;
    this.#fleet = fleet;
  }

  /** @throws QueueError if it is not the attempt of this item that is known to have begun */
  async check({ index, run }: Pick<Begun, "index" | "run">): Promise<void> {
    const known = (await this.#read()).get(index);
    if (known !== undefined && known.run !== run) throw this.#restored(1);
  }

  async add(one: Begun): Promise<void> {
    const begun = await this.#read();
    if (begun.get(one.index)?.run === one.run) return;
    await appendLine(this.#path, `${one.index} ${one.attempt} ${one.run}`);
    begun.set(one.index, one);
  }

  /**
   * Compares it with the database: an item that has begun is being applied or done, or it was retried on purpose. Only such a retry keeps
   * the attempt that it replaces.
   *
   * @throws QueueError if the database is older
   */
  async compare(db: Statements, fleet: number): Promise<void> {
    const begun = await this.#read();
    if (begun.size === 0) return;
    const all = [...begun.values()];
    const rows = await db.query<{ position: number; retried: boolean }>(
      `SELECT b.position, EXISTS (
         SELECT 1 FROM corral.attempts a WHERE a.fleet = $1 AND a.position = b.position AND a.attempt >= b.attempt) AS retried
       FROM unnest($2::int[], $3::int[], $4::text[]) AS b (position, attempt, run)
       LEFT JOIN corral.items i ON i.fleet = $1 AND i.position = b.position
       WHERE i.attempt IS DISTINCT FROM b.attempt OR i.run IS DISTINCT FROM b.run OR i.state NOT IN ('applying', 'done')`,
      [fleet, all.map(({ index }) => index), all.map(({ attempt }) => attempt), all.map(({ run }) => run)],
    );
    const unknown = rows.filter(({ retried }) => !retried);
    if (unknown.length > 0) throw this.#restored(unknown.length);
    for (const { position } of rows) begun.delete(position);
  }

  /** A line that was cut does not count: its attempt had changed nothing. A whole line that is unreadable may be of any item, so it is refused. */
  async #read(): Promise<Map<number, Begun>> {
    if (this.#begun !== null) return this.#begun;
    const begun = new Map<number, Begun>();
    for (const line of await appendedLines(this.#path, MAX_BYTES)) {
      const [, index, attempt, run] = /^(\d+) (\d+) (\S+)$/.exec(line) ?? [];
      if (run === undefined) throw this.#damaged();
      begun.set(Number(index), { index: Number(index), attempt: Number(attempt), run });
    }
    this.#begun ??= begun;
    return this.#begun;
  }

  #damaged(): QueueError {
    return new QueueError(
      `${this.#path} is damaged: it lists which items of fleet ${this.#fleet} have begun to change files, so that none does it twice. If the ` +
        "queue was not restored to an earlier state, remove the file, and try again. " +
        `Otherwise cancel the fleet with \`corral fleet cancel ${this.#fleet}\`.`,
    );
  }

  #restored(count: number): QueueError {
    const items = count === 1 ? "1 item" : `${count} items`;
    return new QueueError(
      `The queue is older than the files of this machine: ${items} of fleet ${this.#fleet} had begun to change files, and the queue does not ` +
        "know it, so they would do it twice. It was restored from a backup, or a standby took over without the last commits. Cancel the " +
        `fleet with \`corral fleet cancel ${this.#fleet}\`. If doing it again does no harm, remove ${this.#path} and try again.`,
    );
  }
}
