import type { ItemRequest } from "../model/item.ts";
import {
  type Answered,
  type AskedElsewhere,
  type AsksCoordinators,
  MAX_ASKED_BY_MACHINE,
  MAX_ASKED_BYTES_BY_MACHINE,
  type QuestionName,
  type UnreadQuestion,
} from "../model/work.ts";
import type { Connection, Scope } from "./connection.ts";

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
