import type { Read } from "./read.ts";

/** More lines say more than a folder of this size needs. */
const MAX_LINES = 500;

/**
 * Which files a `.dockerignore` leaves out. A line is a path from the folder, in which `*` and `?` stand for characters of one
 * name and `**` for any folders; what is below a path that matches is left out too. Exceptions (`!`) are refused: they would
 * make it hard to see what is built.
 */
export function ignoredBy(text: string): Read<(path: string) => boolean> {
  const lines = text
    .split(/\r?\n/)
    .map((line) => line.trim())
    .filter((line) => line !== "" && !line.startsWith("#"));
  if (lines.length > MAX_LINES) return { ok: false, fault: `.dockerignore has more than ${MAX_LINES} lines` };
  if (lines.some((line) => line.startsWith("!")))
    return { ok: false, fault: ".dockerignore has a line with `!`, which Corral does not take" };
  const patterns = lines.map((line) => patternOf(line.replace(/^\.?\/+/, "").replace(/\/+$/, "")));
  return { ok: true, value: (path) => patterns.some((pattern) => pattern.test(path)) };
}

function patternOf(line: string): RegExp {
  const parts = line.split(/(\*\*\/|\*\*|\*|\?)/).map((part) => STANDS_FOR[part] ?? escaped(part));
  return new RegExp(`^${parts.join("")}(/|$)`);
}

const STANDS_FOR: Readonly<Record<string, string>> = { "**/": "(?:[^/]+/)*", "**": ".*", "*": "[^/]*", "?": "[^/]" };

function escaped(text: string): string {
  return text.replace(/[\\^$.*+?()[\]{}|/-]/g, "\\$&");
}
