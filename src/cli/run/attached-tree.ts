import { type AttachedTree, attachedTree } from "../../operations/runs.ts";
import { isAttachmentName } from "../../run/calls/call.ts";
import { UsageError } from "../terminal/arguments.ts";
import type { NamedPath } from "./attachments.ts";

/** The value of `--attach-tree`, `COMMIT` or `COMMIT=NAME`. `others`: attachments whose names are taken. */
export async function attachedTreeOf(
  raw: string,
  others: readonly NamedPath[],
  where: { readonly cwd: string; readonly signal: AbortSignal },
): Promise<AttachedTree> {
  const [, revision = raw, name = "tree.tar"] = /^(.+)=([^/=]+)$/s.exec(raw) ?? [];
  if (!isAttachmentName(name)) throw new UsageError(`--attach-tree: ${JSON.stringify(name)} is not a file name`);
  if (others.some((other) => other.name === name))
    throw new UsageError(`--attach-tree: another attachment has the name ${name}; write COMMIT=NAME`);
  return await attachedTree(revision, name, where);
}
