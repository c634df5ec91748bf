import { isUtf8 } from "node:buffer";
import { structuredPatch } from "diff";
import { visibleLine } from "../../text/visible.ts";

const CONTEXT_LINES = 3;
/** A longer diff helps no reader, and computing it takes long. */
const MAX_EDITS = 1000;
/** To take so many lines apart takes as long as to compare them, and all of it is one turn of the thread. */
const MANY_LINES = 20_000;
const MAX_EDITS_OF_MANY = 500;

/** The hunks of a unified diff. Null for binary content, or too many differences. */
export function textDiff(before: Buffer, after: Buffer): string[] | null {
  if (!isText(before) || !isText(after)) return null;
  const [old, now] = [before.toString("utf8"), after.toString("utf8")];
  const isLong = [old, now].some((text) => text.split("\n", MANY_LINES + 1).length > MANY_LINES);
  const patch = structuredPatch("", "", old, now, "", "", {
    context: CONTEXT_LINES,
    maxEditLength: isLong ? MAX_EDITS_OF_MANY : MAX_EDITS,
  });
  if (patch === undefined) return null;
  return patch.hunks.flatMap(({ oldStart, oldLines, newStart, newLines, lines }) => [
    `@@ -${rangeOf(oldStart, oldLines)} +${rangeOf(newStart, newLines)} @@`,
    ...lines.map(visibleLine),
  ]);
}

/** An empty range starts at the line before it, as in `diff -u`. */
function rangeOf(start: number, lines: number): string {
  return `${lines === 0 ? start - 1 : start},${lines}`;
}

export function isText(content: Buffer): boolean {
  return isUtf8(content) && !content.includes(0);
}
