import type { ItemRequest } from "../model/item.ts";
import { type Claim, type ClaimedItem, LONGEST_DELAY_MS } from "../model/queue.ts";
import { QueueError } from "../model/queue-error.ts";
import type { Answer } from "./group-commit.ts";
import type { Scope } from "./scope.ts";
import { ACTIVE } from "./states.ts";
import { type Answers, AT_ONCE, type Step, type WriteOf } from "./write.ts";

/** Claims for all of these together, in their order. */
export function claimStep(
  scope: Scope,
  fleet: number,
  claims: readonly WriteOf<"claim">[],
  { answers, again }: { readonly answers: Answers; readonly again: boolean },
): Step {
  const attempts = claims.flatMap((claim) => claim.attempts);
  return {
    statement: {
      text: CLAIM,
      values: [
        ...[fleet, scope.now(), attempts.length, scope.self],
        ...[attempts.map(({ run }) => run), attempts.map(({ cell }) => cell), again],
      ],
    },
    done(rows) {
      const answerOf = answersFrom(rows as readonly ClaimRow[], scope);
      let from = 0;
      for (const claim of claims) {
        answers.set(claim, answerOf(from, claim.attempts.length));
        from += claim.attempts.length;
      }
    },
  };
}

type AnswerOf = (from: number, count: number) => Answer;

function answersFrom(rows: readonly ClaimRow[], { self, now }: Scope): AnswerOf {
  const [first] = rows;
  const failed = (error: Error): AnswerOf => {
    return () => ({ error });
  };
  if (first === undefined) return failed(new QueueError("the fleet was removed from the queue"));
  if (first.state === "loading") return failed(new Error("the items of this fleet are not loaded yet"));
  const { elsewhere, next } = first;
  const fleet = first.state === "running" && first.owner !== self ? "taken" : first.state;
  // The caller compares it with its own clock.
  const nextAtMs = fleet !== "running" || next === null ? null : next - first.now + (now() ?? Date.now());
  const items = rows.flatMap(({ json, attempt, earlier, run, cell }): ClaimedItem[] =>
    json === null ? [] : [{ request: JSON.parse(json) as ItemRequest, attempt, earlier, run, cell }],
  );
  return (from, count) => {
    return { value: { items: items.slice(from, from + count), nextAtMs, fleet, elsewhere } satisfies Claim };
  };
}

interface ClaimRow extends Omit<ClaimedItem, "request"> {
  readonly state: "loading" | Claim["fleet"];
  readonly owner: string | null;
  readonly now: number;
  readonly next: number | null;
  readonly elsewhere: number;
  /** Null if no item was claimed; then there is one row. */
  readonly json: string | null;
}

const nextAfter = (time: string): string =>
  `(SELECT not_before FROM corral.items WHERE fleet = $1 AND state = 'queued' AND not_before > ${time}
    ORDER BY not_before LIMIT 1)`;

/**
 * The fleet's row is locked first, so that no other process can take the fleet over before these claims are committed. If the next
 * item waits longer than any does, the clock was set back: then that item's time has come. What an earlier try claimed counts: its
 * runs are known by their names. Items that are locked are found again by their places (docs/architecture.md, fact: plans-without-statistics).
 */
const CLAIM = `
  WITH standing AS MATERIALIZED (
    SELECT state, owner, needs IS NOT NULL AS is_shared, greatest(coalesce($2::bigint, corral.now_ms()), ${AT_ONCE}) AS now
    FROM corral.fleets WHERE id = $1 FOR SHARE),
  waiting AS MATERIALIZED (SELECT ${nextAfter("(SELECT now FROM standing)")} AS next),
  clock AS MATERIALIZED (
    SELECT CASE WHEN w.next - s.now > ${LONGEST_DELAY_MS} THEN w.next ELSE s.now END AS now
    FROM standing s CROSS JOIN waiting w WHERE s.state = 'running' AND s.owner = $4),
  attempts AS (SELECT * FROM unnest($5::text[], $6::text[]) WITH ORDINALITY AS attempts (run, cell, n)),
  before AS (
    SELECT i.position, i.attempt, i.earlier, a.run, a.cell, a.n FROM attempts a JOIN corral.items i USING (run)
    WHERE $7 AND i.fleet = $1 AND i.state = 'running' AND i.owner = $4),
  free AS (SELECT run, cell, row_number() OVER (ORDER BY n) AS n FROM attempts WHERE run NOT IN (SELECT run FROM before)),
  due AS (
    SELECT place, row_number() OVER (ORDER BY not_before, position) AS n FROM (
      SELECT ctid AS place, position, not_before FROM corral.items
      WHERE fleet = $1 AND state = 'queued' AND not_before <= (SELECT now FROM clock)
      ORDER BY not_before, position LIMIT $3 FOR UPDATE SKIP LOCKED) AS first),
  taken AS (
    UPDATE corral.items i SET state = 'running', attempt = i.attempt + 1, run = free.run, cell = free.cell, owner = $4
    FROM due JOIN free USING (n) WHERE i.ctid = due.place
    RETURNING i.position, i.attempt, i.earlier, i.run, i.cell, free.n),
  claimed AS (
    SELECT n, attempt, earlier, run, cell,
      (SELECT r.json FROM corral.requests r WHERE r.fleet = $1 AND r.position = c.position) AS json
    FROM (SELECT * FROM before UNION ALL SELECT * FROM taken) AS c)
  SELECT s.state, s.owner, s.now,
    CASE WHEN w.next = (SELECT now FROM clock) THEN ${nextAfter("(SELECT now FROM clock)")} ELSE w.next END AS next,
    CASE WHEN s.is_shared THEN (
      SELECT count(*)::int FROM corral.items WHERE fleet = $1 AND ${ACTIVE} AND state IN ('away', 'delivered')
    ) ELSE 0 END AS elsewhere, c.attempt, c.earlier, c.run, c.cell, c.json
  FROM standing s CROSS JOIN waiting w LEFT JOIN claimed c ON true ORDER BY c.n`;
