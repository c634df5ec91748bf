import { checkWrite } from "../../sandbox/access.ts";
import { ASK } from "../../sandbox/approval.ts";
import type { Mount } from "../../sandbox/mount.ts";
import { formatBytes } from "../../sandbox/units.ts";
import { covers, joinVirtual, MAX_COMPONENT_BYTES, type VirtualPath } from "../../sandbox/virtual-path.ts";
import type { Change } from "../model/changeset.ts";
import { linkTextFault } from "../model/link-text.ts";
import { textOf } from "../model/raw-name.ts";
import type { View } from "../view/view.ts";
import type { Draft } from "./draft.ts";

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
  const texts = draft.names.map((name) => textOf(name) ?? name.replace(/[^\x20-\x7e]/g, "?"));
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
  if (draft.names.some((name) => textOf(name) === null)) return "its name is not UTF-8";
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
