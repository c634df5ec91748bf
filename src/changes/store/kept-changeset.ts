import { sha256 } from "../../platform/sha256.ts";
import { shellWord } from "../../platform/shell-word.ts";
import type { Settled } from "../apply/verdict.ts";
import type { Changeset } from "../model/changeset.ts";
import { isChangesetId, type KeptState } from "./record.ts";

export interface KeptChangeset {
  readonly changeset: Changeset;
  readonly state: KeptState;
  /** The indexes of the changes that can still be applied. */
  readonly waiting: ReadonlySet<number>;
}

/** One changeset in a list. */
export type Listed =
  | { readonly id: string; readonly ok: true; readonly state: KeptState; readonly applying: boolean }
  | { readonly id: string; readonly ok: false; readonly reason: string };

/**
 * Why nothing was done: the changeset does not exist, another process is working on it, its record cannot be read, or it is not
 * the one that was shown.
 */
export interface NotKept {
  readonly ok: false;
  readonly code: "missing" | "busy" | "broken" | "changed";
  readonly reason: string;
}

export type Loaded = ({ readonly ok: true } & KeptChangeset) | NotKept;
export type Applied = { readonly ok: true; readonly settled: readonly Settled[]; readonly left: number } | NotKept;
export type Discarded = { readonly ok: true } | NotKept;

/** An application that was interrupted because its process ended. */
export type Finished =
  | { readonly id: string; readonly ok: true; readonly changeset: Changeset; readonly settled: readonly Settled[] }
  | { readonly id: string; readonly ok: false; readonly reason: string };

export function missing(id: string): NotKept {
  const reason = isChangesetId(id) ? "there is no such changeset" : "that is not a changeset id";
  return { ok: false, code: "missing", reason };
}

/** `lock`: the file that it holds, if it cannot be seen from here whether it runs; else null. */
export function whyBusy(id: string, lock: string | null): string {
  const reason = `another process is working on changeset ${id}`;
  if (lock === null) return reason;
  const advice = `It runs, or ran, in another container or on another machine. If it has ended for good, remove its lock: rm ${shellWord(lock)}`;
  return `${reason}. ${advice}`;
}

export function changed(id: string): NotKept {
  return { ok: false, code: "changed", reason: `changeset ${id} is not what was shown any more: look at it again` };
}

/** A kept changeset whose application was completed. `settled`: what this call applied; null: nothing. */
export type Completed = (Extract<Loaded, { ok: true }> & { readonly settled: readonly Settled[] | null }) | NotKept;

/** A SHA-256 of what a person is shown of a changeset and what is applied: its directories and all its changes. */
export function digestOf({ id, project, mounts, changes }: Changeset): string {
  const places = mounts.map(({ path, target, targetIdentity, closed }) => [path, target, targetIdentity, closed]);
  return sha256(JSON.stringify([id, project, places, changes]));
}
