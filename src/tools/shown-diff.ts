import { createTwoFilesPatch } from "diff";
import type { GuardedFiles } from "../files/guarded.ts";
import { sha256 } from "../platform/sha256.ts";
import type { Shown } from "./agreement.ts";

/** For a longer file no diff is computed; its new content is shown instead. */
const MAX_COMPARED_CHARS = 256 * 1024;
/** A diff with more changed lines is slow to compute and helps no reader. */
const MAX_EDITS = 2000;

/** What a write would change, as a unified diff. A file that does not exist or is not text counts as empty. */
export async function shownWrite(path: string, content: string, files: GuardedFiles): Promise<Shown> {
  const before = await files.read(path).then(
    (read) =>
      read.type === "text" && !read.truncated && read.content.length <= MAX_COMPARED_CHARS ? read.content : "",
    // If the read error matters, the operation itself reports it.
    () => "",
  );
  const options = { context: 3, maxEditLength: MAX_EDITS };
  const patch =
    content.length > MAX_COMPARED_CHARS ? undefined : createTwoFilesPatch(path, path, before, content, "", "", options);
  if (patch === undefined || before === "") return { diff: patch ?? allOf(path, content, "+"), before: null };
  return { diff: patch, before: sha256(before) };
}

/** Exact replacements, each as removed and added lines. The rest of the file is not shown. */
export function shownEdits(path: string, edits: readonly { readonly old: string; readonly new: string }[]): Shown {
  const pieces = edits.map(
    ({ old, new: next }, index) => `@@ edit ${index + 1} @@\n${lines("-", old)}\n${lines("+", next)}`,
  );
  return { diff: [`--- ${path}`, `+++ ${path}`, ...pieces].join("\n") };
}

export function shownAppend(path: string, content: string): Shown {
  return { diff: [`--- ${path}`, `+++ ${path}`, "@@ at the end @@", lines("+", content)].join("\n") };
}

/** The two paths; the content is not shown. */
export function shownTransfer(how: "copy" | "rename", from: string, to: string): Shown {
  return { diff: `${how} from ${from}\n${how} to ${to}` };
}

function allOf(path: string, content: string, sign: "+" | "-"): string {
  return [`--- ${path}`, `+++ ${path}`, lines(sign, content)].join("\n");
}

function lines(sign: "+" | "-", text: string): string {
  return text
    .split("\n")
    .map((line) => sign + line)
    .join("\n");
}
