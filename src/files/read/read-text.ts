import type { ReadOptions, TextResult } from "../model/files.ts";
import { notText, unfit } from "../model/refusals.ts";
import type { ByteSource } from "./byte-source.ts";
import { countLinesFrom, findLine } from "./count-lines.ts";
import { readWindow } from "./text-window.ts";

export const DEFAULT_CHARS = 200_000;
export const MAX_CHARS = 2_000_000;

/** A window of a text file, in whole lines. Only a line longer than `maxChars` is cut, between characters. */
export async function readText(source: ByteSource, path: string, options: ReadOptions): Promise<TextResult> {
  const { signal } = options;
  const offset = positive(path, "offset", options.offset ?? 1);
  const column = positive(path, "column", options.column ?? 1);
  const limit = positive(path, "limit", options.limit ?? Number.MAX_SAFE_INTEGER);
  const maxChars = Math.min(positive(path, "maxChars", options.maxChars ?? DEFAULT_CHARS), MAX_CHARS);

  const start = await findLine(source, offset, signal);
  if (start.position === null) return afterTheEnd(source.size, offset, start.lines);
  const window = await readWindow(source, start.position, { column, limit, maxChars, signal });
  if (window === null) throw notText(path, null);

  const { content, endsAt, truncatedBy } = window;
  const newlines = content.split("\n").length - 1;
  const midLine = content !== "" && !content.endsWith("\n");
  const rest = truncatedBy === null ? 0 : await countLinesFrom(source, endsAt, signal);
  const outputLines = newlines + (midLine ? 1 : 0);
  // A line that the window cuts is counted once, with its rest.
  const shown = truncatedBy !== null && midLine ? newlines : outputLines;
  const totalLines = rest === null ? null : offset - 1 + shown + rest;
  const hints = [
    truncatedBy === null ? null : goOn(offset, newlines, midLine ? (newlines === 0 ? column : 1) : null, content),
    totalLines === null ? "The file is too large to count its lines." : null,
    source.changed() ? "The file changed while it was read: read it again to get its newest content." : null,
  ].filter((hint) => hint !== null);
  return {
    type: "text",
    content,
    bytes: source.size,
    totalLines,
    outputLines,
    truncated: truncatedBy !== null,
    truncatedBy,
    hint: hints.length === 0 ? null : hints.join(" "),
  };
}

/** `column`: the column at which the last line, which was cut, began. Null if it was shown whole. */
function goOn(offset: number, newlines: number, column: number | null, content: string): string {
  const next = offset + newlines;
  if (column === null) return `There is more: continue with offset ${next}.`;
  const shown = content.length - (content.lastIndexOf("\n") + 1);
  return `Line ${next} is too long to show whole: continue with offset ${next} and column ${column + shown}.`;
}

function afterTheEnd(bytes: number, offset: number, lines: number): TextResult {
  const hint = `The file has ${lines} ${lines === 1 ? "line" : "lines"}: offset ${offset} is after its end.`;
  return {
    type: "text",
    content: "",
    bytes,
    totalLines: lines,
    outputLines: 0,
    truncated: false,
    truncatedBy: null,
    hint,
  };
}

function positive(path: string, name: string, value: number): number {
  if (Number.isSafeInteger(value) && value >= 1) return value;
  throw unfit("read", path, `${name} must be a whole number of at least 1.`);
}
