import { type Dirent, promises } from "node:fs";
import { join } from "node:path/posix";
import { setImmediate as nextTurn } from "node:timers/promises";
import { codeOf } from "../../platform/errno.ts";
import { canonicalMounts, carve } from "../../sandbox/access.ts";
import { asksForHostExecuted, type EntryKind, whyHostExecuted } from "../../sandbox/host-executed.ts";
import type { Mount } from "../../sandbox/mount.ts";
import type { Sandbox } from "../../sandbox/sandbox.ts";
import { deliveryOf } from "../../sandbox/staging.ts";
import type { Violation } from "../../sandbox/violation.ts";
import { joinVirtual } from "../../sandbox/virtual-path.ts";

/** Of all writable direct mounts of one cell together. More is refused: what was not looked at could not be held. */
export const MAX_LOOKED_AT = 200_000;
/** Each is a mount more in the cell. */
export const MAX_HELD = 64;
/** After so many entries other work of the process gets a turn. */
const SLICE = 50;

/** The sandbox as its cell has it: what programs of the host would execute is read-only in a writable direct mount. */
export type Held =
  | { readonly ok: true; readonly sandbox: Sandbox; readonly held: readonly Mount[] }
  | { readonly ok: false; readonly violations: readonly Violation[] };

/**
 * Looks for names in the writable direct mounts that programs of the host would execute. A mount cannot ask, so those that exist cannot be
 * changed by the cell; those that do not exist could only be made in a view.
 */
export async function holdHostExecuted(sandbox: Sandbox, signal?: AbortSignal): Promise<Held> {
  const open = sandbox.mounts.filter(isWritableDirectly);
  if (open.length === 0 || !asksForHostExecuted(sandbox)) return { ok: true, sandbox, held: [] };
  const search = new Search(new Set(sandbox.mounts.map(({ host }) => host)), signal);
  for (const mount of open) await search.folder(mount, [], 1);
  if (search.violations.length > 0) return { ok: false, violations: search.violations.slice(0, MAX_HELD) };
  const { held } = search;
  return { ok: true, sandbox: { ...sandbox, mounts: canonicalMounts([...sandbox.mounts, ...held]) }, held };
}

/** True for a mount in which a cell makes changes on the host itself. */
export function isWritableDirectly(mount: Mount): boolean {
  return mount.mode === "rw" && mount.view === undefined && deliveryOf(mount) === "direct";
}

const MAX_DEPTH = 256;
/** Of a repository's own directory: many entries, and nothing that is executed. */
const NOT_LOOKED_AT: ReadonlySet<string> = new Set(["refs", "logs", "lfs"]);

class Search {
  readonly held: Mount[] = [];
  readonly violations: Violation[] = [];
  readonly #others: ReadonlySet<string>;
  readonly #signal: AbortSignal | undefined;
  #looked = 0;

  constructor(others: ReadonlySet<string>, signal: AbortSignal | undefined) {
    this.#others = others;
    this.#signal = signal;
  }

  async folder(mount: Mount, parts: readonly string[], depth: number): Promise<void> {
    const entries = await entriesOf(join(mount.host, ...parts));
    const isGits = parts.at(-1) === ".git";
    // Whatever its name: git takes a directory with these for a repository, and reads its configuration.
    const isBare =
      !isGits && ["HEAD", "objects", "refs"].every((wanted) => entries.some(({ name }) => name === wanted));
    for (const entry of entries) {
      if (this.violations.length > 0) return;
      this.#looked += 1;
      if (this.#looked > MAX_LOOKED_AT) this.#refuse(mount, `it has more than ${MAX_LOOKED_AT} entries`);
      if (this.#looked % SLICE === 0) await nextTurn();
      this.#signal?.throwIfAborted();
      const { name } = entry;
      const below = [...parts, name];
      const host = join(mount.host, ...below);
      if (this.#others.has(host)) continue;
      const kind: EntryKind = entry.isDirectory() ? "directory" : entry.isSymbolicLink() ? "link" : "file";
      const asGits = (rest: string): string => (isBare ? `/x.git/${name}${rest}` : `${host}${rest}`);
      const why = whyHostExecuted(asGits(kind === "directory" ? "/x" : ""), kind === "directory" ? "file" : kind);
      if (why !== null) this.#hold(mount, below, kind, why);
      else if (kind === "directory" && !((isGits || isBare) && NOT_LOOKED_AT.has(name))) {
        // The objects themselves are thousands, and only one file beside them names another place.
        const inner = (isGits || isBare) && name === "objects" ? [...below, "info"] : below;
        if (depth >= MAX_DEPTH) this.#refuse(mount, `it is deeper than ${MAX_DEPTH} levels`);
        else await this.folder(mount, inner, depth + 1);
      }
    }
  }

  #hold(mount: Mount, parts: readonly string[], kind: EntryKind, why: string): void {
    const path = joinVirtual(mount.path, parts.join("/"));
    if (kind === "link") this.#refuse(mount, `${why}, and ${path} is a link, which cannot be made read-only`);
    else if (this.held.length >= MAX_HELD)
      this.#refuse(mount, `it has more than ${MAX_HELD} names of what programs of the host would execute`);
    else {
      const { stage: _, discard: __, ...carved } = carve(mount, path);
      this.held.push({ ...carved, mode: "ro" });
    }
  }

  #refuse({ path }: Mount, reason: string): void {
    const way = "Say `stage: true` of the mount, so that its changes are asked about, or mount less";
    this.violations.push({ code: "MOUNT_SOURCE_REFUSED", path, reason: `${reason}. ${way}` });
  }
}

/** Nothing if it is no directory, or not for the user that Corral runs as. */
async function entriesOf(folder: string): Promise<Dirent[]> {
  try {
    return await promises.readdir(folder, { withFileTypes: true });
  } catch (error) {
    if (["ENOENT", "ENOTDIR", "EACCES", "ELOOP"].includes(codeOf(error) ?? "")) return [];
    throw error;
  }
}
