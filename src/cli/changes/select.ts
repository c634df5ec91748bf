import type { Change } from "../../changes/model/changeset.ts";
import { covers, type VirtualPath } from "../../sandbox/virtual-path.ts";

export interface Selection {
  /** In the order in which they are applied. */
  readonly changes: readonly Change[];
  /** Of the paths that were asked for, those at or below which nothing waits. */
  readonly unmatched: readonly VirtualPath[];
}

/** The changes at or below some paths, and the directories that they need; all of them where no path is given. */
export function selectChanges(waiting: readonly Change[], only: readonly VirtualPath[]): Selection {
  if (only.length === 0) return { changes: waiting, unmatched: [] };
  const chosen = new Set(waiting.filter(({ path }) => only.some((wanted) => covers(wanted, path))));
  const above = new Set([...chosen].filter(({ kind }) => kind !== "delete").flatMap(({ path }) => parentsOf(path)));
  const made = new Set(waiting.filter((one) => above.has(one.path) && makesDirectory(one)).map(({ path }) => path));
  // What gives way to such a directory has to go before it.
  const changes = waiting.filter((one) => chosen.has(one) || made.has(one.path));
  const unmatched = only.filter((wanted) => !waiting.some(({ path }) => covers(wanted, path)));
  return { changes, unmatched };
}

function makesDirectory({ kind, type }: Change): boolean {
  return kind === "create" && type === "directory";
}

function parentsOf(path: string): string[] {
  const parts = path.split("/");
  return parts.slice(2).map((_, index) => parts.slice(0, index + 2).join("/"));
}
