import type { MachineNeeds } from "../../declarations/fleet-yaml.ts";
import { MAX_JSON_DEPTH, MAX_JSON_VALUES, parseJson } from "../../json/parse-json.ts";
import type { ItemRequest, ItemResult } from "../model/item.ts";
import { MAX_CLAIM, type NewAttempt, QueueError, type Taken } from "../model/queue.ts";
import {
  type Answered,
  type AskedElsewhere,
  type AsksCoordinators,
  type AttemptDelivery,
  type ClaimedWork,
  MAX_ASKED_BY_MACHINE,
  MAX_ASKED_BYTES_BY_MACHINE,
  type Membership,
  type NewMachine,
  type Offer,
  type QuestionName,
  type UnreadQuestion,
  type Withdrawn,
} from "../model/work.ts";
import { GroupCommit, type WriteOutcome } from "../stored/group-commit.ts";
import { bounded, boundedResult } from "../stored/rows.ts";
import { type Connection, LEASE_MS, RENEW_MS, type Scope, type StatementWait } from "./connection.ts";
import { lackingRights } from "./migrate.ts";

/** Before its lease ends, and by a clock of this machine that only goes forward: then it stops by itself. */
const LOST_AFTER_MS = 10_000;
/** The database takes 1 MiB of a result and 4 MiB of each stream. */
const MAX_RESULT_BYTES = 900 * 1024;
const HEAD_CHARS = 256 * 1024;
const TAIL_CHARS = 768 * 1024;
/** Each has up to about 9 MiB. */
const MAX_DELIVERIES = 16;
/** The network may carry nothing for a moment: then the same is asked over another connection. */
const ANSWER_MS = 10_000;
/** Deliveries may have many megabytes. */
const DELIVERED_MS = 60_000;
/** The database queues items again that a machine has had for a minute and does not know of; a late claim may begin it so much later. */
const MORE_MS = 180_000;
/** How often the time since the last renewal is checked. */
const LOOK_MS = 500;

/** A machine at the queue. Everything that it says goes through functions of the database, which check it. */
export class PostgresMembership implements Membership {
  readonly id: string;
  readonly questions: AsksCoordinators;
  readonly #db: Connection;
  readonly #lost = new AbortController();
  readonly #held = new Map<string, Omit<Withdrawn, "why">>();
  readonly #timers: readonly NodeJS.Timeout[];
  readonly #deliveries = new GroupCommit<DeliveryRow>((deliveries) => this.#deliverAll(deliveries), MAX_DELIVERIES);
  /** A claim was sent more than once: until then an earlier one may take late what is not known here. */
  #mayHaveMoreUntil = Number.NEGATIVE_INFINITY;
  #renewedAt: number;
  #isRenewing = false;

  private constructor(db: Connection, id: string, renewedAt: number) {
    this.id = id;
    this.questions = questionsBy(db, id);
    this.#db = db;
    this.#renewedAt = renewedAt;
    this.#timers = [setInterval(() => void this.#renew(), RENEW_MS), setInterval(() => this.#look(), LOOK_MS)];
  }

  static async join(db: Connection, { name, labels, slots, version }: NewMachine): Promise<PostgresMembership> {
    const lacking = await lackingRights(db);
    if (lacking.length > 0)
      throw new QueueError(
        `This database user lacks rights that machines need: ${lacking.join(", ")}. Run \`corral work --grants ROLE\` of this ` +
          "version, and its output as the owner of the tables.",
      );
    const asked = "SELECT corral.machine_join($1, $2, $3, $4, $5) AS id";
    const { rows, sentAt } = await timed<{ id: string }>(db, asked, [name, labels, slots, version, LEASE_MS]);
    const [row] = rows;
    if (row === undefined) throw new Error("the queue gave this machine no id");
    return new PostgresMembership(db, row.id, sentAt);
  }

  get lost(): AbortSignal {
    return this.#lost.signal;
  }

  async offers(): Promise<readonly Offer[]> {
    const rows = await this.#ask<OfferRow>("SELECT * FROM corral.machine_offers($1)", [this.id]);
    return rows.map(({ spec, agreement, has_more: hasMore, ...offer }) => ({
      ...offer,
      spec: foreignJson(spec),
      agreement: foreignJson(agreement),
      hasMore,
    }));
  }

  async refuses(fleet: string, why: string | null): Promise<void> {
    await this.#ask("SELECT corral.machine_refuses($1, $2, $3)", [this.id, fleet, why]);
  }

  async claim(fleets: readonly string[], count: number, newAttempt: () => NewAttempt): Promise<readonly ClaimedWork[]> {
    if (this.#lost.signal.aborted) return [];
    const attempts = Array.from({ length: Math.max(0, Math.min(count, MAX_CLAIM)) }, newAttempt);
    if (attempts.length === 0) return [];
    let sent = 0;
    const onSent = (): void => {
      sent += 1;
      if (sent > 1) this.#mayHaveMoreUntil = performance.now() + MORE_MS;
    };
    const rows = await this.#ask<Omit<ClaimedWork, "request" | "cell"> & { request: string }>(
      "SELECT * FROM corral.machine_claim($1, $2, $3)",
      [this.id, fleets, attempts.map(({ run }) => run)],
      { onSent },
    );
    return rows.flatMap(({ request: json, ...claimed }) => {
      const request = foreignJson(json) as ItemRequest | undefined;
      if (!Number.isInteger(request?.index) || request === undefined) return [];
      const { fleet, attempt } = claimed;
      this.#held.set(nameOf(fleet, request.index, attempt), { fleet, index: request.index, attempt });
      return [{ ...claimed, cell: null, request }];
    });
  }

  async deliver(fleet: string, index: number, attempt: number, delivery: AttemptDelivery): Promise<Taken> {
    const { result, streams, changeset, more } = delivery;
    const whole = JSON.stringify(result);
    // The coordinator keeps less than these bounds.
    const json =
      Buffer.byteLength(whole) <= MAX_RESULT_BYTES
        ? whole
        : JSON.stringify({ ...(JSON.parse(boundedResult(result).json) as ItemResult), fields: result.fields });
    const [stdout, stderr] = [streams?.stdout, streams?.stderr].map((text) =>
      text === undefined ? null : bounded(text, HEAD_CHARS, TAIL_CHARS),
    );
    const told = await this.#deliveries.add<Taken>([
      fleet,
      index,
      attempt,
      json,
      stdout ?? null,
      stderr ?? null,
      changeset,
      JSON.stringify(more ?? null),
    ]);
    this.#held.delete(nameOf(fleet, index, attempt));
    return told;
  }

  async giveBack(fleet: string, index: number, attempt: number, afterMs: number): Promise<Taken> {
    const told = await this.#told("SELECT corral.machine_give_back($1, $2, $3, $4, $5) AS told", [
      this.id,
      fleet,
      index,
      attempt,
      afterMs,
    ]);
    this.#held.delete(nameOf(fleet, index, attempt));
    return told;
  }

  async withdrawn(): Promise<readonly Withdrawn[]> {
    const held = [...this.#held.values()];
    if (held.length === 0 && performance.now() > this.#mayHaveMoreUntil) return [];
    const rows = await this.#ask<{ fleet: string; item: number; attempt: number; why: Withdrawn["why"] }>(
      "SELECT * FROM corral.machine_withdrawn($1, $2, $3, $4)",
      [this.id, held.map(({ fleet }) => fleet), held.map(({ index }) => index), held.map(({ attempt }) => attempt)],
    );
    for (const { fleet, item, attempt, why } of rows)
      if (why === "fenced") this.#held.delete(nameOf(fleet, item, attempt));
    return rows.map(({ item, ...row }) => ({ ...row, index: item }));
  }

  async [Symbol.asyncDispose](): Promise<void> {
    for (const timer of this.#timers) clearInterval(timer);
    // If the queue is away, its lease ends, and the owners of the fleets queue its items again.
    const leave = "SELECT corral.machine_leave($1)";
    const left = this.#db.query(leave, [this.id], { withinMs: ANSWER_MS }).catch(() => {});
    if (!this.#lost.signal.aborted) await left;
  }

  /** After the lease has ended nothing that the queue answers counts, and it may not answer for long. */
  async #ask<Row>(text: string, values: readonly unknown[], patience: StatementWait = {}): Promise<Row[]> {
    const { signal } = this.#lost;
    signal.throwIfAborted();
    const { promise: lost, reject } = Promise.withResolvers<never>();
    const onLost = (): void => reject(signal.reason);
    signal.addEventListener("abort", onLost, { once: true });
    try {
      return await Promise.race([this.#db.query<Row>(text, values, { withinMs: ANSWER_MS, ...patience }), lost]);
    } finally {
      signal.removeEventListener("abort", onLost);
    }
  }

  /** What has ended meanwhile is delivered together: one transaction, and one notice to the coordinator. */
  async #deliverAll(deliveries: readonly DeliveryRow[]): Promise<WriteOutcome[]> {
    const columns = Array.from({ length: DELIVERY_COLUMNS }, (_, column) => deliveries.map((one) => one[column]));
    const rows = await this.#ask<{ told: string }>(DELIVER, [this.id, ...columns], { withinMs: DELIVERED_MS });
    return rows.map(({ told }) => ({ value: takenOf(told) }));
  }

  async #told(text: string, values: readonly unknown[]): Promise<Taken> {
    const [row] = await this.#ask<{ told: string }>(text, values);
    return takenOf(row?.told ?? "the queue did not answer");
  }

  async #renew(): Promise<void> {
    if (this.#isRenewing || this.#lost.signal.aborted) return;
    this.#isRenewing = true;
    try {
      const asked = "SELECT corral.machine_renew($1, $2) AS renewed";
      const { rows, sentAt } = await timed<{ renewed: boolean }>(this.#db, asked, [this.id, LEASE_MS]);
      if (rows[0]?.renewed === true) this.#renewedAt = sentAt;
      else this.#lose("the queue says that it has ended");
    } catch {
      // The next one may succeed, if there is time for it.
    } finally {
      this.#isRenewing = false;
    }
  }

  #look(): void {
    if (performance.now() - this.#renewedAt > LOST_AFTER_MS) this.#lose("it could not be renewed");
  }

  #lose(why: string): void {
    if (!this.#lost.signal.aborted) this.#lost.abort(new Error(`the lease of this machine is lost: ${why}`));
  }
}

/**
 * For a lease, which begins after `sentAt`: so it ends later than this machine believes. Time without a connection does not count, or
 * a machine would believe that a lease is over which it was just given.
 */
async function timed<Row>(
  db: Connection,
  text: string,
  values: readonly unknown[],
): Promise<{ readonly rows: Row[]; readonly sentAt: number }> {
  let sentAt = performance.now();
  const onSent = (): void => {
    sentAt = performance.now();
  };
  const rows = await db.query<Row>(text, values, { withinMs: RENEW_MS, onSent });
  return { rows, sentAt };
}

interface OfferRow extends MachineNeeds {
  readonly fleet: string;
  readonly project: string;
  readonly spec: string;
  readonly agreement: string;
  readonly has_more: boolean;
}

/** The values of `corral.machine_deliver`, but for the machine. */
type DeliveryRow = readonly unknown[];
const DELIVERY_COLUMNS = 8;
const DELIVER = `
  SELECT corral.machine_deliver($1, fleet, item, attempt, json, stdout, stderr, changeset, more) AS told
  FROM unnest($2::text[], $3::int[], $4::int[], $5::text[], $6::text[], $7::text[], $8::text[], $9::text[])
    WITH ORDINALITY AS d (fleet, item, attempt, json, stdout, stderr, changeset, more, n) ORDER BY n`;

function takenOf(told: string): Taken {
  return told === "taken" ? { ok: true } : { ok: false, code: "fenced", reason: told };
}

function nameOf(fleet: string, index: number, attempt: number): string {
  return `${fleet}:${index}:${attempt}`;
}

/** What another process wrote into the database; undefined if it is no JSON, or too much. What cannot be read does not keep others from being read. */
export function foreignJson(json: string): unknown {
  // An output is nested in its result.
  const parsed = parseJson(json, 2 * MAX_JSON_VALUES, 2 * MAX_JSON_DEPTH);
  return parsed.ok ? parsed.value : undefined;
}

/** Questions that wait for an answer of this process, which owns their fleet: $1 to $3 are its project, its name and its owner. */
const WAITING = `
  FROM corral.fleets f JOIN corral.questions q ON q.fleet = f.id
  JOIN corral.items i ON i.fleet = q.fleet AND i.position = q.position
  JOIN corral.requests r ON r.fleet = q.fleet AND r.position = q.position
  WHERE f.project = $1 AND f.name = $2 AND f.owner = $3 AND NOT q.is_over AND q.answer IS NULL
    AND i.state = 'away' AND i.attempt = q.attempt AND i.owner = q.machine`;

/** Their names. Questions of attempts that are over are removed. The sizes are read without the texts. */
export async function questionsOf(
  { db, project, self }: Scope,
  fleet: string,
  limit: number,
): Promise<readonly UnreadQuestion[]> {
  await db.query(
    `DELETE FROM corral.questions q USING corral.fleets f
     WHERE f.project = $1 AND f.name = $2 AND f.owner = $3 AND q.fleet = f.id AND NOT EXISTS (
       SELECT 1 FROM corral.items i
       WHERE i.fleet = q.fleet AND i.position = q.position AND i.state = 'away' AND i.attempt = q.attempt)`,
    [project, fleet, self],
  );
  const rows = await db.query<Omit<UnreadQuestion, "fleet">>(
    `SELECT "index", attempt, number, bytes FROM (
       SELECT q.position AS "index", q.attempt, q.number, q.asked_at, octet_length(q.json) + octet_length(r.json) AS bytes,
         row_number() OVER machine AS n, sum(octet_length(q.json) + octet_length(r.json)) OVER machine AS total ${WAITING}
       WINDOW machine AS (PARTITION BY q.machine ORDER BY q.asked_at, q.position, q.number)) AS waiting
     WHERE n = 1 OR (n <= $4 AND total <= $5) ORDER BY asked_at, "index", number LIMIT $6`,
    [project, fleet, self, MAX_ASKED_BY_MACHINE, MAX_ASKED_BYTES_BY_MACHINE, limit],
  );
  return rows.map((row) => ({ ...row, fleet }));
}

/** Those of these questions that still wait, in the same order. */
export async function textsOf(
  { db, project, self }: Scope,
  fleet: string,
  names: readonly QuestionName[],
): Promise<readonly AskedElsewhere[]> {
  if (names.length === 0) return [];
  const rows = await db.query<Omit<AskedElsewhere, "request" | "fleet"> & { readonly request: string }>(
    `SELECT q.position AS "index", q.attempt, q.number, i.run, q.machine_name AS machine, q.json, r.json AS request ${WAITING}
       AND (q.position, q.attempt, q.number) IN (SELECT * FROM unnest($4::int[], $5::int[], $6::int[]))
     ORDER BY q.asked_at, q.position, q.number`,
    [
      project,
      fleet,
      self,
      names.map(({ index }) => index),
      names.map(({ attempt }) => attempt),
      names.map(({ number }) => number),
    ],
  );
  return rows.map(({ request, ...row }) => ({ ...row, fleet, request: JSON.parse(request) as ItemRequest }));
}

/** False: no run waits for it any more, or this process does not own the fleet. */
export async function answerTo({ db, project, self }: Scope, asked: QuestionName, json: string): Promise<boolean> {
  const rows = await db.query(
    `WITH answered AS (
       UPDATE corral.questions q SET answer = $1 FROM corral.fleets f, corral.items i
       WHERE f.project = $2 AND f.name = $3 AND f.owner = $4 AND q.fleet = f.id AND q.position = $5 AND q.attempt = $6
         AND q.number = $7 AND q.answer IS NULL AND NOT q.is_over
         AND i.fleet = q.fleet AND i.position = q.position AND i.state = 'away' AND i.attempt = q.attempt
       RETURNING f.name)
     SELECT pg_notify('corral', name) FROM answered`,
    [json, project, asked.fleet, self, asked.index, asked.attempt, asked.number],
  );
  return rows.length === 1;
}

/** What the machine with this id asks. */
export function questionsBy(db: Connection, machine: string): AsksCoordinators {
  return {
    async ask({ fleet, index, attempt, number }, json) {
      const [row] = await db.query<{ told: string }>("SELECT corral.machine_ask($1, $2, $3, $4, $5, $6) AS told", [
        machine,
        fleet,
        index,
        attempt,
        number,
        json,
      ]);
      if (row?.told === "taken") return { ok: true };
      return { ok: false, reason: row?.told ?? "the queue did not answer" };
    },
    async unask({ fleet, index, attempt, number }) {
      await db.query("SELECT corral.machine_unask($1, $2, $3, $4, $5)", [machine, fleet, index, attempt, number]);
    },
    async answers() {
      const rows = await db.query<
        Pick<Answered, "fleet" | "attempt"> & { item: number; question: number; answer: string }
      >("SELECT * FROM corral.machine_answers($1)", [machine]);
      return rows.map(({ fleet, item, attempt, question, answer }) => ({
        fleet,
        index: item,
        attempt,
        number: question,
        json: answer,
      }));
    },
  };
}
