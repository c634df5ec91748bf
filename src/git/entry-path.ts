import type { GitRepo } from "../declarations/git/repo.ts";
import { below, joinVirtual, parseVirtualPath, type VirtualPath } from "../sandbox/virtual-path.ts";
import { printableLine } from "../text/visible.ts";
import { GitRefusal } from "./refusal.ts";

export type EntryPath =
  | { readonly ok: true; readonly path: VirtualPath }
  /** `fault` follows the path in a sentence. */
  | { readonly ok: false; readonly fault: string };

/**
 * The virtual path of a path in a repository. Repositories can contain hostile names, which leave the directory or which
 * another git takes for its `.git` (CVE-2014-9390, CVE-2019-1352).
 */
export function placeOfEntry(at: VirtualPath, path: string): EntryPath {
  const fault = faultOfEntry(path);
  if (fault !== null) return { ok: false, fault };
  const parsed = parseVirtualPath(`${at}/${path}`);
  if (!parsed.ok) return { ok: false, fault: `is not possible here: ${parsed.reason}` };
  return parsed.path === joinVirtual(at, path) ? parsed : { ok: false, fault: "is not a plain path" };
}

/** Why git itself would not check an entry out; null if it would. The fault follows the path in a sentence. */
export function faultOfEntry(path: string): string | null {
  const parts = path.split("/");
  if (parts.some((part) => part === "" || part === "." || part === "..")) return "is not a plain path";
  return parts.some(isGitsOwn) ? "is inside of git's own directory" : null;
}

/** Characters that HFS+ ignores when it compares names. */
const IGNORED_BY_HFS = /[\u200c-\u200f\u202a-\u202e\u206a-\u206f\ufeff]/gu;
/** `.git` in any case, its NTFS short name, and with the suffixes that NTFS ignores. */
const GIT_NAME = /^(\.git|git~\d+)[ .]*(:.*)?$/iu;

function isGitsOwn(part: string): boolean {
  const folded = part.replace(IGNORED_BY_HFS, "");
  return GIT_NAME.test(folded) || GIT_NAME.test(folded.normalize("NFKC"));
}

/** A file or directory of a repository: its path there, and its virtual path. */
export interface Wanted {
  /** From the root of the repository; empty for the whole repository. */
  readonly entry: string;
  readonly path: VirtualPath;
}

/** Parses a worker's path: from the root of the repository, or absolute and below its directory. */
export function wantedIn({ at, name }: GitRepo, raw: string): Wanted {
  const plain = raw.startsWith("/") ? belowPlace(at, raw) : raw.replace(/^(\.\/+)+/, "").replace(/\/+$/, "");
  if (plain === "" || plain === ".") return { entry: "", path: at };
  const place: EntryPath = plain === null ? { ok: false, fault: `is not below ${at}` } : placeOfEntry(at, plain);
  if (!place.ok || plain === null)
    throw new GitRefusal(
      "GIT_PATH",
      `'${printableLine(raw)}' cannot be a path of the repository ${name}: it ${place.ok ? "is empty" : place.fault}. ` +
        `Name files from the root of the repository, as in 'notes/a.md', or by their full path below ${at}.`,
    );
  return { entry: plain, path: place.path };
}

function belowPlace(at: VirtualPath, raw: string): string | null {
  const parsed = parseVirtualPath(raw);
  return parsed.ok ? below(at, parsed.path) : null;
}
