import { checkWrite } from "../../sandbox/access.ts";
import { ASK } from "../../sandbox/approval.ts";
import type { Mount } from "../../sandbox/mount.ts";
import { covers, joinVirtual, MAX_COMPONENT_BYTES, type VirtualPath } from "../../sandbox/virtual-path.ts";
import { formatBytes } from "../../text/amounts.ts";
import { type Change, type EntryFacts, linkTextFault, nameText, type RawName } from "../model/changeset.ts";
import type { View } from "../view/view.ts";

/** A change as the scan finds it: names are bytes, and nothing has been checked. */
export interface Draft {
  readonly names: readonly RawName[];
  readonly kind: "create" | "modify" | "delete";
  readonly type: "file" | "directory" | "link" | "other";
  readonly base: EntryFacts | null;
  readonly next: EntryFacts | null;
  readonly linkText?: string;
  /** True if an entry that the view does not show has that name. */
  readonly overHidden?: boolean;
  /** True for a deletion that makes room for an entry of another type. */
  readonly givesWay?: boolean;
  /** Why it was refused on the machine where the run was; absent: it was not. */
  readonly refusal?: string;
}

/** The most changes of one run. */
export const MAX_CHANGES = 50_000;

/** More was changed than can be checked. */
export class TooManyChanges extends Error {}

/** Deletions that make room, from the bottom; then folders from the top, files, links; then deletions from the bottom. */
export function inOrderOfApplying<
  One extends Pick<Draft, "kind" | "type" | "givesWay"> & { names: readonly unknown[] },
>(drafts: readonly One[]): One[] {
  const stage = ({ kind, type, givesWay }: One): number => {
    if (kind === "delete") return givesWay ? 0 : 3;
    return type === "directory" ? 1 : 2;
  };
  const upwards = (one: One): number => (one.kind === "delete" ? -one.names.length : one.names.length);
  return drafts.toSorted((a, b) => stage(a) - stage(b) || upwards(a) - upwards(b) || byName(a, b));
}

function byName(a: { names: readonly unknown[] }, b: { names: readonly unknown[] }): number {
  const [one, other] = [a.names.join("/"), b.names.join("/")];
  return one < other ? -1 : one > other ? 1 : 0;
}

/** The bytes that one run may write in all. */
export class BytesBudget {
  readonly limit: number;
  #left: number;

  constructor(bytes: number) {
    this.limit = bytes;
    this.#left = bytes;
  }

  take(bytes: number): boolean {
    if (bytes > this.#left) return false;
    this.#left -= bytes;
    return true;
  }
}

/**
 * The path of a change, and why it must not be applied even if it is approved: what the file tools would have refused, and
 * what no file tool can make. A null refusal means it may be applied.
 */
export function judged(
  draft: Draft,
  { mount, pathOf, closed }: Pick<View, "mount" | "pathOf" | "closed">,
  budget: BytesBudget,
): Pick<Change, "parts" | "path" | "type" | "refusal"> {
  const texts = draft.names.map((name) => nameText(name) ?? name.replace(/[^\x20-\x7e]/g, "?"));
  const path = pathOf(draft.names) ?? joinVirtual(mount.path, texts.join("/"));
  const type = draft.type === "other" ? "file" : draft.type;
  const refusal = refusalOf(draft, { mount, closed }, path, budget) ?? draft.refusal ?? null;
  return { parts: texts, path, type, refusal };
}

function refusalOf(
  draft: Draft,
  { mount, closed }: Pick<View, "mount" | "closed">,
  path: VirtualPath,
  budget: BytesBudget,
): string | null {
  if (draft.names.some((name) => nameText(name) === null)) return "its name is not UTF-8";
  if (draft.names.some((name) => name.length > MAX_COMPONENT_BYTES)) return "its name is too long";
  if (mount.mode !== "rw") return "its directory is read-only";
  const operation = draft.kind === "delete" ? "delete" : "write";
  const doing = operation === "delete" ? "deleting" : "writing";
  if ((mount.approval ?? ASK)[operation] === "blocked")
    return `${doing} is blocked there, and no approval can allow it`;
  if (draft.overHidden) return "an entry that may not be read has that name";
  const staysFolder = draft.type === "directory" && draft.kind !== "delete";
  if (!staysFolder && closed.some((inner) => covers(path, inner)))
    return "it contains a directory that was granted separately";
  if (draft.type === "other") return "it is not a file, a directory or a link";
  if (draft.kind === "delete") return draft.type === "file" ? constraintRefusal(mount, path, 0) : null;
  if (draft.type === "link") {
    const { linkText, names } = draft;
    if (linkText === undefined) return "it is a link whose target cannot be read";
    return linkTextFault(linkText, names.length - 1) ?? constraintRefusal(mount, path, 0);
  }
  if (draft.type === "directory") return null;
  if (((draft.next?.mode ?? 0) & 0o6000) !== 0) return "it is setuid or setgid: it would run as its owner or group";
  const size = draft.next?.size ?? 0;
  const unfit = constraintRefusal(mount, path, size);
  if (unfit !== null) return unfit;
  return budget.take(size) ? null : `with this change, more than ${formatBytes(budget.limit)} would be written`;
}

/** A reason fits into a sentence, while the refusal of a file tool is a whole message. */
function constraintRefusal(mount: Mount, path: VirtualPath, size: number): string | null {
  const error = checkWrite({ mounts: [mount] }, path, { size });
  switch (error?.code) {
    case undefined:
      return null;
    case "SUFFIX_NOT_ALLOWED":
      return `only files ending in ${mount.suffixes?.join(", ")} are allowed there`;
    case "FILE_TOO_LARGE":
      return `it has ${formatBytes(size)}, and at most ${formatBytes(mount.maxFileBytes ?? 0)} are allowed there`;
    default:
      return "its directory is read-only";
  }
}
