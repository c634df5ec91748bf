/** A line of a hunk. `before` and `after` are its numbers in the two versions. `mark`: the characters that differ from the line in its place. */
export interface Row {
  readonly kind: "same" | "added" | "removed" | "note";
  readonly before: number | null;
  readonly after: number | null;
  readonly text: string;
  readonly mark: readonly [from: number, to: number] | null;
}

export interface Hunk {
  readonly rows: readonly Row[];
}

/** One file of a diff: what is said of it, and its hunks. */
export interface FileDiff {
  readonly headings: readonly string[];
  readonly hunks: readonly Hunk[];
}

/** Of one file, the lines that are not drawn. */
export interface Left {
  readonly name: string;
  readonly lines: number;
}

/**
 * What is drawn of a diff: all that is said of each file, and the first `room` lines. What of it is not drawn, file by file: the two together
 * are always all of it.
 */
export function cutDiff(
  files: readonly FileDiff[],
  room: number,
): { readonly files: FileDiff[]; readonly left: Left[] } {
  const left: Left[] = [];
  let free = room;
  const drawn = files.map(({ headings, hunks }): FileDiff => {
    let lines = 0;
    const cut = hunks.map(({ rows }): Hunk => {
      const seen = rows.slice(0, Math.max(0, free));
      free -= seen.length;
      lines += rows.length - seen.length;
      return { rows: seen };
    });
    if (lines > 0) left.push({ name: (headings.at(-1) ?? "").replace(/^\+\+\+ /, ""), lines });
    return { headings, hunks: cut.filter(({ rows }) => rows.length > 0) };
  });
  return { files: drawn, left };
}

const HUNK = /^@@ -(\d{1,9})(?:,(\d{1,9}))? \+(\d{1,9})(?:,(\d{1,9}))? @@/;
/** Above, both lines are shown without marks. */
const MAX_MARKED_CHARS = 2000;
/** Of the longer line, so much is the same at both ends if a mark helps. */
const LEAST_ALIKE = 0.25;

/**
 * Reads a unified diff. How long a hunk is, its head says: a line of a file that looks like the head of another file stays a line of
 * the file. Anything else is a heading.
 */
export function parseDiff(lines: readonly string[]): FileDiff[] {
  const files: { headings: string[]; hunks: Hunk[] }[] = [];
  let current: { headings: string[]; hunks: Hunk[] } | null = null;
  for (let at = 0; at < lines.length; ) {
    const line = lines[at] ?? "";
    const head = HUNK.exec(line);
    if (head !== null && current !== null) {
      const { rows, next } = rowsOf(lines, at + 1, head);
      current.hunks.push({ rows: marked(rows) });
      at = next;
      continue;
    }
    // After the hunks of a file, a heading begins the next one.
    if (current === null || current.hunks.length > 0) {
      current = { headings: [], hunks: [] };
      files.push(current);
    }
    current.headings.push(line);
    at += 1;
  }
  return files;
}

function rowsOf(
  lines: readonly string[],
  from: number,
  [, before, beforeLines = "1", after, afterLines = "1"]: RegExpExecArray,
): { readonly rows: Row[]; readonly next: number } {
  const left = { before: Number(beforeLines), after: Number(afterLines) };
  // An empty range is named by the line before it.
  const number = {
    before: Number(before) + (left.before === 0 ? 1 : 0),
    after: Number(after) + (left.after === 0 ? 1 : 0),
  };
  const rows: Row[] = [];
  let at = from;
  for (; at < lines.length; at += 1) {
    const line = lines[at] ?? "";
    const [sign, text] = [line[0] ?? " ", line.slice(1)];
    if (sign === "\\") {
      rows.push({ kind: "note", before: null, after: null, text: text.trim(), mark: null });
      continue;
    }
    if (left.before === 0 && left.after === 0) break;
    const isRemoved = sign === "-";
    const isAdded = sign === "+";
    rows.push({
      kind: isRemoved ? "removed" : isAdded ? "added" : "same",
      before: isAdded ? null : number.before,
      after: isRemoved ? null : number.after,
      text,
      mark: null,
    });
    if (!isAdded) {
      number.before += 1;
      left.before = Math.max(0, left.before - 1);
    }
    if (!isRemoved) {
      number.after += 1;
      left.after = Math.max(0, left.after - 1);
    }
  }
  return { rows, next: at };
}

/** As many removed lines as added ones after them are taken as the same lines, changed. */
function marked(rows: readonly Row[]): Row[] {
  const all = [...rows];
  for (let at = 0; at < all.length; ) {
    const removed = runOf(all, at, "removed");
    const added = runOf(all, at + removed, "added");
    if (removed > 0 && removed === added)
      for (let index = 0; index < removed; index += 1) {
        const [old, now] = [all[at + index], all[at + removed + index]];
        const marks = old === undefined || now === undefined ? null : marksOf(old.text, now.text);
        if (old === undefined || now === undefined || marks === null) continue;
        all[at + index] = { ...old, mark: marks[0] };
        all[at + removed + index] = { ...now, mark: marks[1] };
      }
    at += Math.max(1, removed + added);
  }
  return all;
}

function runOf(rows: readonly Row[], from: number, kind: Row["kind"]): number {
  let count = 0;
  while (rows[from + count]?.kind === kind) count += 1;
  return count;
}

type Mark = readonly [number, number];

/** What is between the common beginning and the common end of two lines; null if they have too little in common. */
export function marksOf(old: string, now: string): readonly [Mark, Mark] | null {
  const longest = Math.max(old.length, now.length);
  const shortest = Math.min(old.length, now.length);
  if (longest > MAX_MARKED_CHARS) return null;
  let start = 0;
  while (start < shortest && old[start] === now[start]) start += 1;
  let end = 0;
  while (end < shortest - start && old[old.length - 1 - end] === now[now.length - 1 - end]) end += 1;
  if (start + end < longest * LEAST_ALIKE) return null;
  return [
    [start, old.length - end],
    [start, now.length - end],
  ];
}
