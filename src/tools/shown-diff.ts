import { createTwoFilesPatch } from "diff";
import type { GuardedFiles } from "../files/guarded.ts";
import { digestOf } from "../files/model/content-bytes.ts";
import type { Shown } from "./agreement.ts";

/** Of a file that is longer, no difference is looked for: its new content is shown as it is. */
const MAX_COMPARED_CHARS = 256 * 1024;
/** Of what differs in more lines a diff tells nobody anything, and finding it takes long. */
const MAX_EDITS = 2000;

/** What a file would become, as a unified diff for whoever is asked. A file that is not there, or no text, counts as empty. */
export async function shownWrite(path: string, content: string, files: GuardedFiles): Promise<Shown> {
  const before = await files.read(path).then(
    (read) =>
      read.type === "text" && !read.truncated && read.content.length <= MAX_COMPARED_CHARS ? read.content : "",
    // Why it cannot be read is told by the operation itself, where that matters.
    () => "",
  );
  const options = { context: 3, maxEditLength: MAX_EDITS };
  const patch =
    content.length > MAX_COMPARED_CHARS ? undefined : createTwoFilesPatch(path, path, before, content, "", "", options);
  if (patch === undefined || before === "") return { diff: patch ?? allOf(path, content, "+"), before: null };
  return { diff: patch, before: digestOf(before) };
}

/** Exact replacements, each as what goes and what comes. What they were made in is known when they are made. */
export function shownEdits(path: string, edits: readonly { readonly old: string; readonly new: string }[]): Shown {
  const pieces = edits.map(
    ({ old, new: next }, index) => `@@ edit ${index + 1} @@\n${lines("-", old)}\n${lines("+", next)}`,
  );
  return { diff: [`--- ${path}`, `+++ ${path}`, ...pieces].join("\n") };
}

export function shownAppend(path: string, content: string): Shown {
  return { diff: [`--- ${path}`, `+++ ${path}`, "@@ at its end @@", lines("+", content)].join("\n") };
}

/** Where it comes from, for its content is whatever stands there. */
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
