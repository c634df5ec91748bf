import { joinVirtual, parseVirtualPath, type VirtualPath } from "../sandbox/virtual-path.ts";

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
