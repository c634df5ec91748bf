import { covers, type VirtualPath } from "../../../sandbox/virtual-path.ts";
import type { GrantRecord } from "../../granted/record.ts";
import type { Mode } from "../../granted/refusal.ts";

/** A directory that a worker turned out to need. */
export interface Wanted {
  readonly directory: VirtualPath;
  readonly host: string;
  /** The project's mount in which it lies, by name; null: it is a directory of the host. */
  readonly mount: string | null;
  readonly mode: Mode;
}

/** What one worker was granted, without what another of its grants holds already. */
export function wantedBy(worker: string, grants: readonly GrantRecord[]): Wanted[] {
  const all = grants.filter(({ granted }) => granted.includes(worker));
  const wanted = new Map<string, Wanted>();
  for (const { directory, host, mount, mode } of all) {
    const known = wanted.get(directory);
    if (known?.mode === "write") continue;
    wanted.set(directory, { directory: directory as VirtualPath, host, mount, mode });
  }
  return [...wanted.values()].filter(
    (one) => ![...wanted.values()].some((other) => other !== one && holds(other, one)),
  );
}

function holds(outer: Wanted, inner: Wanted): boolean {
  return covers(outer.directory, inner.directory) && (outer.mode === "write" || inner.mode === "read");
}
