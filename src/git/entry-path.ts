import type { GitRepo } from "../declarations/git/repo.ts";
import { below, joinVirtual, parseVirtualPath, type VirtualPath } from "../sandbox/virtual-path.ts";
import { GitRefusal } from "./refusal.ts";

export type EntryPath =
  | { readonly ok: true; readonly path: VirtualPath }
  /** `fault` follows the name of what is wrong. */
  | { readonly ok: false; readonly fault: string };

/**
 * The place in the sandbox of a path of a repository, whoever wrote that: a repository may hold names that lead elsewhere
 * or that another git would take for its own directory (CVE-2014-9390, CVE-2019-1352 and their kind).
 */
export function placeOfEntry(at: VirtualPath, path: string): EntryPath {
  const parts = path.split("/");
  if (parts.some((part) => part === "" || part === "." || part === ".."))
    return { ok: false, fault: "is not a plain path" };
  if (parts.some(isGitsOwn)) return { ok: false, fault: "leads into git's own directory" };
  const parsed = parseVirtualPath(`${at}/${path}`);
  if (!parsed.ok) return { ok: false, fault: `is none that a directory here can have: ${parsed.reason}` };
  return parsed.path === joinVirtual(at, path) ? parsed : { ok: false, fault: "is not a plain path" };
}

/** What HFS+ leaves out when it compares names. */
const IGNORED_BY_HFS = /[\u200c-\u200f\u202a-\u202e\u206a-\u206f\ufeff]/gu;
/** `.git` in any case, by its short name, and with the ends that NTFS leaves out. */
const GIT_NAME = /^(\.git|git~\d+)[ .]*(:.*)?$/iu;

function isGitsOwn(part: string): boolean {
  const folded = part.replace(IGNORED_BY_HFS, "");
  return GIT_NAME.test(folded) || GIT_NAME.test(folded.normalize("NFKC"));
}

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
