import type { GitRepo } from "../declarations/git/repo.ts";
import { below, parseVirtualPath, type VirtualPath } from "../sandbox/virtual-path.ts";
import { type EntryPath, placeOfEntry } from "./entry-path.ts";
import { GitRefusal } from "./refusal.ts";

/** A file or directory of a repository that a worker names, both ways. */
export interface Wanted {
  /** From the root of the repository; empty for all of it. */
  readonly entry: string;
  readonly path: VirtualPath;
}

/** A path as a worker writes it: from the root of the repository, or absolute and below its directory. */
export function wantedIn({ at, name }: GitRepo, raw: string): Wanted {
  const plain = raw.startsWith("/") ? belowPlace(at, raw) : raw.replace(/^(\.\/+)+/, "").replace(/\/+$/, "");
  if (plain === "" || plain === ".") return { entry: "", path: at };
  const place: EntryPath = plain === null ? { ok: false, fault: `does not lie below ${at}` } : placeOfEntry(at, plain);
  if (!place.ok || plain === null)
    throw new GitRefusal(
      "GIT_PATH",
      `'${shown(raw)}' cannot be a path of the repository ${name}: it ${place.ok ? "is empty" : place.fault}. ` +
        `Name files from the root of the repository, as in 'notes/a.md', or by their whole path below ${at}.`,
    );
  return { entry: plain, path: place.path };
}

function belowPlace(at: VirtualPath, raw: string): string | null {
  const parsed = parseVirtualPath(raw);
  return parsed.ok ? below(at, parsed.path) : null;
}

/** A name of a repository or of a worker, on one line and short. */
export function shown(raw: string): string {
  const clean = raw.replace(/[\p{Cc}\p{Cf}\p{Cs}\u2028\u2029]/gu, "\ufffd");
  return clean.length > 200 ? `${clean.slice(0, 200)}…` : clean;
}
