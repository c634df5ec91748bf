import { isUtf8 } from "node:buffer";
import { structuredPatch } from "diff";
import { visibleLine } from "../../text/visible.ts";

const CONTEXT_LINES = 3;
/** A longer diff helps no reader, and computing it takes long. */
const MAX_EDITS = 1000;

/** The hunks of a unified diff. Null for binary content, or too many differences. */
export function textDiff(before: Buffer, after: Buffer): string[] | null {
  if (!isText(before) || !isText(after)) return null;
  const patch = structuredPatch("", "", before.toString("utf8"), after.toString("utf8"), "", "", {
    context: CONTEXT_LINES,
    maxEditLength: MAX_EDITS,
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
