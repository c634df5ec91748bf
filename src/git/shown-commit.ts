import { sha256 } from "../platform/sha256.ts";
import { visibleName } from "../text/visible.ts";
import type { CommitDiff } from "./repository.ts";
import type { StagedFile } from "./tree-state.ts";

/** `content`: null for a deletion. */
export function digestLine({ path, change }: StagedFile, content: Uint8Array | null): string {
  const digest = content === null ? "" : ` (${content.length} bytes, SHA-256 ${sha256(content)})`;
  return `${change} ${visibleName(path)}${digest}`;
}

interface MadeCommit {
  readonly commit: string;
  readonly message: string;
  /** A line for each changed file. */
  readonly digests: readonly string[];
  readonly diff: CommitDiff;
}

/** All of a commit: its message, and its diff. If the diff does not contain everything, the digests come first. */
export function shownCommit({ commit, message, digests, diff }: MadeCommit): string {
  const head = [`commit ${commit}`, ...message.split("\n").map((line) => `message: ${line}`)];
  const list = diff.isWhole ? [] : ["all changed files, because the diff below does not show everything:", ...digests];
  return [...head, ...list, diff.text].join("\n");
}
