import type { Change, Changeset } from "../changes/model/changeset.ts";
import { covers, parseVirtualPath } from "../sandbox/virtual-path.ts";
import { withDirectories } from "./foreseen-changes.ts";

/** What does not wait any more, another process has decided on. */
export function chosenChanges(waiting: Changeset, which: readonly number[]): ReturnType<typeof selectChanges> {
  const wanted = new Set(which);
  const chosen = new Set(waiting.changes.filter(({ index }) => wanted.has(index)));
  return { changes: withDirectories(waiting, chosen), unmatched: [] };
}

/** The changes at or below some paths, and the directories that they need. Absent: all of them; an empty list chooses none. */
export function selectChanges(
  { changes: waiting }: Changeset,
  asked: readonly string[] | undefined,
): { readonly changes: readonly Change[]; readonly unmatched: readonly string[] } {
  if (asked === undefined) return { changes: waiting, unmatched: [] };
  const parsed = asked.map((raw) => ({ raw, place: parseVirtualPath(raw) }));
  const paths = parsed.flatMap(({ place }) => (place.ok ? [place.path] : []));
  const chosen = new Set(waiting.filter(({ path }) => paths.some((wanted) => covers(wanted, path))));
  const changes = withDirectories({ changes: waiting }, chosen);
  const unmatched = parsed
    .filter(({ place }) => !place.ok || !waiting.some(({ path }) => covers(place.path, path)))
    .map(({ raw }) => raw);
  return { changes, unmatched };
}
