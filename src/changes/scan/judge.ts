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

/** How much a run may bring back in all: its limit for what it may write. */
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
 * What a change is called, and why it must not be applied, whoever agrees to it: the same that the file tools would
 * have refused, and what no file tool can make. Null: nothing speaks against it.
 */
export function judged(
  draft: Draft,
  { mount, pathOf, closed }: Pick<View, "mount" | "pathOf" | "closed">,
  budget: BytesBudget,
): Pick<Change, "parts" | "path" | "type" | "refusal"> {
  const texts = draft.names.map((name) => textOf(name) ?? name.replace(/[^\x20-\x7e]/g, "?"));
  const path = pathOf(draft.names) ?? joinVirtual(mount.path, texts.join("/"));
  const type = draft.type === "other" ? "file" : draft.type;
  return { parts: texts, path, type, refusal: refusalOf(draft, { mount, closed }, path, budget) };
}

function refusalOf(
  draft: Draft,
  { mount, closed }: Pick<View, "mount" | "closed">,
  path: VirtualPath,
  budget: BytesBudget,
): string | null {
  if (draft.names.some((name) => textOf(name) === null)) return "its name is no UTF-8 text";
  if (draft.names.some((name) => name.length > MAX_COMPONENT_BYTES)) return "its name is too long";
  if (mount.mode !== "rw") return "nothing can be written there";
  const operation = draft.kind === "delete" ? "delete" : "write";
  const doing = operation === "delete" ? "deleting" : "writing";
  if ((mount.approval ?? ASK)[operation] === "blocked")
    return `${doing} is blocked there, and no approval can allow it`;
  if (draft.overHidden) return "something that may not be read stands there";
  const staysFolder = draft.type === "directory" && draft.kind !== "delete";
  if (!staysFolder && closed.some((inner) => covers(path, inner))) return "it leads to what is granted apart from it";
  if (draft.type === "other") return "it is neither a file, a directory nor a link";
  if (draft.kind === "delete") return draft.type === "file" ? constraintRefusal(mount, path, 0) : null;
  if (draft.type === "link") {
    const { linkText, names } = draft;
    if (linkText === undefined) return "it is a link whose text cannot be read";
    return linkTextFault(linkText, names.length - 1) ?? constraintRefusal(mount, path, 0);
  }
  if (draft.type === "directory") return null;
  if (((draft.next?.mode ?? 0) & 0o6000) !== 0) return "it would run as its owner or group (setuid, setgid)";
  const size = draft.next?.size ?? 0;
  const unfit = constraintRefusal(mount, path, size);
  if (unfit !== null) return unfit;
  return budget.take(size) ? null : `with it, more than ${formatBytes(budget.limit)} would be written`;
}

/** In the words of a reason, which stand in the middle of a sentence: a file tool's own refusal is a text of its own. */
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
      return "nothing can be written there";
  }
}
