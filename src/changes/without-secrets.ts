import fs from "node:fs";
import { contentOf } from "../files/host/content.ts";
import { codeOf, hasCode } from "../platform/errno.ts";
import type { SecretSearch } from "../secrets/secret-search.ts";
import { type Collected, keepingWhatMayBeLost } from "./collect.ts";
import type { Change } from "./model/changeset.ts";
import { nameOf } from "./snapshot.ts";

const PIECE_BYTES = 1024 ** 2;

/**
 * Refuses each change that contains a secret: in a name, the target of a link, or the content of a file. The content is removed
 * too, because a changeset that waits is stored with everything of its mounts. It must no longer be writable for the run.
 */
export async function withoutSecrets(
  collected: Collected,
  search: () => SecretSearch,
  signal: AbortSignal | undefined,
): Promise<Collected> {
  const { changeset, toAsk, leftToCallers } = collected;
  const judged: Change[] = [];
  for (const change of changeset.changes) {
    const content = changeset.mounts[change.mount]?.content;
    const reason = content === undefined ? null : await faultOf(change, content, search, signal);
    if (reason === null || content === undefined) judged.push(change);
    else {
      removeContent(change, content);
      judged.push({ ...change, refusal: change.refusal ?? reason });
    }
  }
  const changes = keepingWhatMayBeLost(judged);
  const open = new Set(changes.filter(({ refusal }) => refusal === null).map(({ index }) => index));
  const stillOpen = (list: readonly Change[]): Change[] => list.filter(({ index }) => open.has(index));
  return { changeset: { ...changeset, changes }, toAsk: stillOpen(toAsk), leftToCallers: stillOpen(leftToCallers) };
}

/** Names the secret that is in it, or is null. */
async function faultOf(
  change: Change,
  root: string,
  search: () => SecretSearch,
  signal: AbortSignal | undefined,
): Promise<string | null> {
  if (change.kind === "delete") return null;
  for (const text of [change.path, change.linkText ?? ""]) {
    const found = search().add(Buffer.from(text));
    if (found !== null) return contains(found);
  }
  if (change.type !== "file") return null;
  try {
    using named = nameOf(root, change.parts);
    if (!named.stat().isFile()) return null;
    using file = named.reopen(fs.constants.O_RDONLY);
    const source = contentOf(file);
    const searching = search();
    for (let at = 0; at < source.size; at += PIECE_BYTES) {
      signal?.throwIfAborted();
      const found = searching.add(await source.read(at, PIECE_BYTES));
      if (found !== null) return contains(found);
    }
    return null;
  } catch (error) {
    // What is not there any more is not applied.
    if (hasCode(error, "ENOENT", "ENOTDIR", "ELOOP")) return null;
    const code = codeOf(error);
    if (code === undefined) throw error;
    return `it cannot be searched for secrets (${code})`;
  }
}

function contains(secret: string): string {
  return `it contains the secret \`${secret}\``;
}

/** With everything in a directory, whose paths contain the secret too. */
function removeContent({ parts }: Change, root: string): void {
  try {
    using folder = nameOf(root, parts.slice(0, -1));
    fs.rmSync(folder.path(parts.at(-1) ?? ""), { recursive: true, force: true });
  } catch (error) {
    if (!hasCode(error, "ENOENT")) throw error;
  }
}
