import { PostgresBlobs } from "../../blobs/postgres-blobs.ts";
import { sha256 } from "../../platform/sha256.ts";
import { textBeside } from "../../platform/text-beside.ts";
import type { ItemRequest, ItemResult } from "../model/item.ts";
import {
  type Agreement,
  type AskedElsewhere,
  type Delivered,
  MAX_RUNNERS,
  type MachineFleet,
  type MemberMachine,
  type Membership,
  type NewMachine,
  type QuestionName,
  type Referred,
  type Runner,
  type UnreadQuestion,
  type WorkStore,
} from "../model/work.ts";
import { ACTIVE } from "../stored/fleet-reads.ts";
import { boundedResult, msOf } from "../stored/rows.ts";
import type { Scope } from "./connection.ts";
import { idOf, replaceFailed } from "./fleets.ts";
import { answerTo, foreignJson, PostgresMembership, questionsOf, textsOf } from "./membership.ts";

/** Deliveries that are read at once; a larger one alone. A hostile machine's have 9 MiB each, and JSON takes many times its bytes in memory. */
const MAX_TAKEN_BYTES = 32 * 1024 ** 2;
const BYTES_OF_JSON = 8;

/** How machines share the items of fleets in a PostgreSQL database. */
export class PostgresWork implements WorkStore {
  readonly #scope: Scope;
  readonly #waiting = new Set<() => void>();
  #isListening = false;

  constructor(scope: Scope) {
    this.#scope = scope;
  }

  async blobs(): Promise<PostgresBlobs> {
    return new PostgresBlobs(this.#scope.db);
  }

  async referred(): Promise<Referred> {
    const { db } = this.#scope;
    const agreed = await db.query<{ agreement: string }>(
      "SELECT agreement FROM corral.fleets WHERE agreement IS NOT NULL",
    );
    const delivered = await db.query<{ changeset: string }>(
      `SELECT DISTINCT d.changeset FROM corral.deliveries d JOIN corral.items i USING (fleet, position)
       WHERE d.changeset IS NOT NULL AND i.state IN ('delivered', 'applying')`,
    );
    const attached = await db.query<{ digest: string }>(
      `SELECT DISTINCT unnest(string_to_array(r.attached, ' ')) AS digest
       FROM corral.requests r JOIN corral.items i USING (fleet, position)
       WHERE r.attached IS NOT NULL AND i.state <> 'done'`,
    );
    return {
      trees: agreed.flatMap(({ agreement }) => Object.values((JSON.parse(agreement) as Agreement).trees)),
      changesets: delivered.map(({ changeset }) => changeset),
      files: attached.map(({ digest }) => digest),
    };
  }

  async replace(fleet: string, requests: AsyncIterable<ItemRequest>): Promise<void> {
    await replaceFailed(this.#scope, fleet, requests);
  }

  async join(machine: NewMachine): Promise<Membership> {
    return await PostgresMembership.join(this.#scope.db, machine);
  }

  async machines(): Promise<MemberMachine[]> {
    const { db } = this.#scope;
    const rows = await db.query<MachineRow>(MACHINES, [this.#scope.project]);
    return [...Map.groupBy(rows, ({ id }) => id)].flatMap(([id, ofIt]) => {
      const [{ joined_at, seen_at, recent, fleet: _, of_fleet: __, why: ___, id: ____, ...machine }] = ofIt as [
        MachineRow,
      ];
      const fleets = ofIt.flatMap(({ fleet, of_fleet: running, why }): MachineFleet[] =>
        fleet === null ? [] : [{ fleet, running, why }],
      );
      return {
        id: sha256(id).slice(0, 12),
        ...machine,
        joinedAt: new Date(joined_at).toISOString(),
        seenAt: new Date(seen_at).toISOString(),
        recentRate: recent > 0 ? recent : null,
        fleets,
      };
    });
  }

  async runners(fleet: string): Promise<readonly Runner[]> {
    return await this.#scope.db.query<Runner>(
      `SELECT coalesce(p.name, '') AS name, count(*)::int AS running
       FROM corral.items i LEFT JOIN corral.processes p ON p.id = i.owner
       WHERE i.fleet = $1 AND i.${ACTIVE} AND i.state = 'away'
       GROUP BY coalesce(p.name, '') ORDER BY count(*) DESC, coalesce(p.name, '') COLLATE "C" LIMIT $2`,
      [await idOf(this.#scope, fleet), MAX_RUNNERS],
    );
  }

  async offer(fleet: string, agreement: Agreement): Promise<boolean> {
    return await this.#agree(fleet, JSON.stringify(agreement));
  }

  async drain(fleet: string): Promise<void> {
    await this.#agree(fleet, null);
  }

  async #agree(fleet: string, agreement: string | null): Promise<boolean> {
    const { db, project, self } = this.#scope;
    const rows = await db.query(
      `WITH agreed AS (
         UPDATE corral.fleets SET agreement = $1
         WHERE project = $2 AND name = $3 AND owner = $4 AND state = 'running' AND needs IS NOT NULL RETURNING name)
       SELECT pg_notify('corral', name) FROM agreed`,
      [agreement, project, fleet, self],
    );
    return rows.length === 1;
  }

  async waiting(
    fleet: string,
    { after, limit }: { readonly after: number; readonly limit: number },
  ): Promise<readonly ItemRequest[]> {
    const rows = await this.#scope.db.query<{ json: string }>(
      `SELECT r.json FROM corral.items i JOIN corral.requests r USING (fleet, position)
       WHERE i.fleet = $1 AND i.position > $2 AND i.state = 'queued' AND i.attempt = 0 ORDER BY i.position LIMIT $3`,
      [await idOf(this.#scope, fleet), after, limit],
    );
    return rows.map(({ json }) => JSON.parse(json) as ItemRequest);
  }

  async settleWaiting(fleet: string, results: readonly ItemResult[]): Promise<readonly number[]> {
    const { db, project, self } = this.#scope;
    const rows = await db.query<{ position: number }>(SETTLE_WAITING, [
      project,
      fleet,
      self,
      results.map(({ index }) => index),
      results.map(({ status }) => status),
      results.map(({ endedAt }) => msOf(endedAt)),
      results.map((result) => boundedResult(result).json),
    ]);
    return rows.map(({ position }) => position);
  }

  async deliveries(fleet: string, limit: number): Promise<readonly Delivered[]> {
    const rows = await this.#scope.db.query<DeliveredRow>(
      `SELECT "index", key, attempt, earlier, run, machine, json, stdout, stderr, changeset, more FROM (
         SELECT d.position AS "index", i.key, d.attempt, i.earlier, d.run, d.machine_name AS machine, d.json, d.stdout, d.stderr,
           d.changeset, d.more, row_number() OVER first AS n,
           sum(${BYTES_OF_JSON} * octet_length(d.json) + coalesce(octet_length(d.stdout), 0) + coalesce(octet_length(d.stderr), 0)) OVER first AS bytes
         FROM corral.deliveries d CROSS JOIN LATERAL (
           SELECT key, earlier FROM corral.items WHERE fleet = $1 AND position = d.position AND attempt = d.attempt AND state = 'delivered'
           OFFSET 0) AS i
         WHERE d.fleet = $1 AND EXISTS (SELECT 1 FROM corral.fleets f WHERE f.id = $1 AND f.owner = $4)
         WINDOW first AS (ORDER BY d.delivered_at, d.position) ORDER BY n LIMIT $2) AS oldest
       WHERE n = 1 OR bytes <= $3 ORDER BY n`,
      [await idOf(this.#scope, fleet), limit, MAX_TAKEN_BYTES, this.#scope.self],
    );
    return rows.map(({ json, stdout, stderr, more, ...delivered }) => ({
      ...delivered,
      result: foreignJson(json),
      streams: stdout === null || stderr === null ? null : { stdout, stderr },
      more: foreignJson(more),
    }));
  }

  async questions(fleet: string, limit: number): Promise<readonly UnreadQuestion[]> {
    return await questionsOf(this.#scope, fleet, limit);
  }

  async readQuestions(fleet: string, names: readonly QuestionName[]): Promise<readonly AskedElsewhere[]> {
    return await textsOf(this.#scope, fleet, names);
  }

  async answer(question: QuestionName, json: string): Promise<boolean> {
    return await answerTo(this.#scope, question, json);
  }

  async reclaim(fleet: string, longestMs: number): Promise<number> {
    const { db, project, self } = this.#scope;
    const rows = await db.query(
      `UPDATE corral.items i SET state = 'queued', not_before = 1, run = NULL, cell = NULL, owner = NULL, earlier = i.earlier + 1
       FROM corral.fleets f
       WHERE f.project = $1 AND f.name = $2 AND f.owner = $3 AND i.fleet = f.id
         AND i.state IN ('running', 'away', 'delivered', 'applying') AND i.state = 'away'
         AND (i.claimed_at < corral.now_ms() - $4::float8
           OR NOT EXISTS (SELECT 1 FROM corral.processes p WHERE p.id = i.owner AND p.lease_until > corral.now_ms()))
       RETURNING i.position`,
      [project, fleet, self, longestMs],
    );
    return rows.length;
  }

  async wake(ms: number, signal: AbortSignal): Promise<void> {
    if (!this.#isListening) {
      this.#isListening = true;
      await this.#scope.db.listen(() => {
        for (const wake of [...this.#waiting]) wake();
      });
    }
    if (signal.aborted) return;
    await new Promise<void>((resolve) => {
      const done = (): void => {
        clearTimeout(timer);
        signal.removeEventListener("abort", done);
        this.#waiting.delete(done);
        resolve();
      };
      const timer = setTimeout(done, ms);
      signal.addEventListener("abort", done);
      this.#waiting.add(done);
    });
  }
}

interface MachineRow extends Omit<MemberMachine, "joinedAt" | "seenAt" | "recentRate" | "fleets"> {
  readonly id: string;
  readonly joined_at: number;
  readonly seen_at: number;
  readonly recent: number;
  /** One of its fleets; null: none, and the row is its only one. */
  readonly fleet: string | null;
  readonly of_fleet: number;
  readonly why: string | null;
}

interface DeliveredRow extends Omit<Delivered, "result" | "streams" | "more"> {
  readonly json: string;
  readonly stdout: string | null;
  readonly stderr: string | null;
  readonly more: string;
}

/** The fleet's row is locked, so that no other process can take the fleet over meanwhile. None of these items failed. */
const SETTLE_WAITING = textBeside(import.meta.url, "sql/settle-waiting.sql");

/**
 * A row for each machine and each of its fleets, all as they were at one moment. The rate is that of this minute and the one before, which
 * is at least a minute's.
 */
const MACHINES = textBeside(import.meta.url, "sql/machines.sql");
