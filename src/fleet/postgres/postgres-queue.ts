import { causeOf, type ItemStreams, isFailure } from "../model/item.ts";
import {
  type Claim,
  type FleetQueue,
  type IntendedSettlement,
  type ItemCounts,
  MAX_CLAIM,
  type NewAttempt,
  type Settlement,
  type Taken,
  type Urgency,
} from "../model/queue.ts";
import { msOf } from "../stored/pace-from.ts";
import { encodedStreams, MAX_FLEET_BYTES } from "../stored/request-batches.ts";
import { boundedResult } from "../stored/result-row.ts";
import type { BegunLog } from "./begun-log.ts";
import { cancelFleetItems, type Scope, type Statements } from "./connection.ts";
import { countsOf } from "./fleets.ts";
import type { GroupCommit, Write } from "./group-commit.ts";

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
