import type { NewAttempt } from "../model/queue.ts";
import type { Rows, Statement } from "./connection.ts";
import type { Answer } from "./group-commit.ts";

/** What a settled item leaves behind, ready for its columns. */
export interface Ending {
  readonly run: string | null;
  readonly status: string;
  readonly code: string;
  readonly failed: number;
  readonly endedAt: number;
  readonly durationMs: number;
  readonly cacheKey: string | null;
  readonly cause: string | null;
  readonly machine: string | null;
  readonly json: string;
  readonly stdout: Buffer | null;
  readonly stderr: Buffer | null;
}

export interface Begun {
  readonly json: string;
  readonly cacheKey: string | null;
  readonly isPrinted: boolean;
  readonly stdout: Buffer | null;
  readonly stderr: Buffer | null;
}

/** A write to the queue of the fleet with this number. */
export type Write = { readonly fleet: number } & (
  | { readonly kind: "claim"; readonly attempts: readonly NewAttempt[] }
  | { readonly kind: "settle"; readonly index: number; readonly attempt: number; readonly ending: Ending }
  | { readonly kind: "begin"; readonly index: number; readonly attempt: number; readonly begun: Begun }
  /** `waitMs`: from now. */
  | {
      readonly kind: "requeue";
      readonly index: number;
      readonly attempt: number;
      readonly waitMs: number;
      readonly isWithdrawn: boolean;
    }
);
export type WriteOf<Kind extends Write["kind"]> = Extract<Write, { kind: Kind }>;
export type ItemWrite = Exclude<Write, WriteOf<"claim">>;

/** A statement that does some writes. `rows`: those that it returned. */
export interface Step {
  readonly statement: Statement;
  done(rows: Rows): void;
}

/** The answers of a group of writes, as they become known. */
export type Answers = Map<Write, Answer>;

/** `not_before` of a new item is 0, so that new items sort before retries. */
export const AT_ONCE = 1;
