import fs from "node:fs";
import { GIT_REPOSITORY, whyHostExecuted } from "../sandbox/host-executed.ts";
import { type Change, type Changeset, placeKey, placesAbove } from "./model/changeset.ts";

/**
 * The changes that no general yes covers, with the reason, by their indexes: what programs of the host would execute, and the deletion of
 * a directory that holds such a thing. Deletions count like any change: without a setting, something else is run.
 */
export function changesApart({
  mounts,
  changes,
  hostExecuted,
}: Pick<Changeset, "mounts" | "changes" | "hostExecuted">): ReadonlyMap<number, string> {
  const apart = new Map<number, string>();
  if (hostExecuted === "allow") return apart;
  const emptied = new Map<string, string>();
  for (const change of changes) {
    const { index, mount, parts, type, kind } = change;
    const target = mounts[mount]?.target ?? "";
    const why = whyHostExecuted(`${target}/${parts.join("/")}`, type) ?? whyInBare(target, change);
    if (why === null) continue;
    apart.set(index, why);
    if (kind === "delete") for (const place of placesAbove(change)) emptied.set(place, why);
  }
  for (const { index, mount, parts, type, kind } of emptied.size === 0 ? [] : changes) {
    const why = kind === "delete" && type === "directory" ? emptied.get(placeKey(mount, parts)) : undefined;
    if (why !== undefined && !apart.has(index)) apart.set(index, why);
  }
  return apart;
}

/** In a bare repository any directory can be git's own: what makes it one is the file HEAD, which is asked about where it is new. */
function whyInBare(target: string, { parts, type }: Change): string | null {
  for (let at = 0; at < parts.length; at += 1) {
    const why = whyHostExecuted(`/x.git/${parts.slice(at).join("/")}`, type);
    // HEAD itself is judged by its real place: in `.git`, where each commit changes one, it makes no repository.
    if (why === null || why === GIT_REPOSITORY) continue;
    const head = [target, ...parts.slice(0, at), "HEAD"].join("/");
    if (fs.lstatSync(head, { throwIfNoEntry: false }) !== undefined) return why;
  }
  return null;
}
