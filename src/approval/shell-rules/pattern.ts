import type { ShellRule } from "./rules.ts";

/** A word of a command as the program will get it; null where only the shell will know it, or how many words it is. */
export type ShellWord = string | null;

/** `maybe`: it depends on words that are not known before the shell runs. */
export type Match = "yes" | "maybe" | "no";

/**
 * Whether a rule's pattern speaks of a simple command.
 *
 * A pattern is words, parted by blanks. A word stands for itself; `*` alone is any one word, and inside a word any part
 * of it; `**` as the last word is any further words, or none. Without it the pattern is the whole command.
 *
 * A rule that lets a command run unseen is read narrowly: inside a word its `*` stops at `/` and never lets `..`
 * through, as `docs/*` is not meant to be `docs/../keys`. A rule that asks or blocks is read widely: its `*` passes
 * over `/`, and `rm` is also `/bin/rm`.
 */
export function matchRule({ pattern, approval }: ShellRule, words: readonly ShellWord[]): Match {
  const { expected, open } = parsePattern(pattern);
  const narrow = approval === "pre_approved";
  const unknownAt = words.indexOf(null);
  const known = unknownAt < 0 ? words : words.slice(0, unknownAt);
  if (known.length > expected.length && !open) return "no";
  const fits = expected.every((glob, index) => {
    const word = known[index];
    return (
      typeof word !== "string" || matchWord(glob, word, narrow) || (index === 0 && !narrow && matchName(glob, word))
    );
  });
  if (!fits) return "no";
  if (known.length < expected.length) return unknownAt < 0 ? "no" : "maybe";
  return unknownAt < 0 || open ? "yes" : "maybe";
}

/** True where the rule spells out a whole command, so that its author saw all of it. */
export function spellsOut({ pattern }: ShellRule): boolean {
  return !pattern.includes("*");
}

/** How much a rule says of a command: the characters that stand for themselves. */
export function specificity({ pattern }: ShellRule): number {
  return pattern.replaceAll(/[\s*]/g, "").length;
}

function parsePattern(pattern: string): { readonly expected: readonly string[]; readonly open: boolean } {
  const words = pattern.split(/\s+/).filter((word) => word !== "");
  const open = words.at(-1) === "**";
  return { expected: open ? words.slice(0, -1) : words, open };
}

/** `rm` for `/usr/bin/rm`: another way to write a command must not get round a rule that is against it. */
function matchName(glob: string, word: string): boolean {
  return !glob.includes("/") && matchPiece(glob, word.slice(word.lastIndexOf("/") + 1));
}

function matchWord(glob: string, word: string, narrow: boolean): boolean {
  if (glob === "*" || glob === word) return true;
  if (!narrow) return matchPiece(glob, word);
  const [globs, pieces] = [glob.split("/"), word.split("/")];
  return (
    globs.length === pieces.length &&
    globs.every((part, index) => {
      const piece = pieces[index] ?? "";
      return part === piece || (piece !== ".." && matchPiece(part, piece));
    })
  );
}

/** Takes each literal part at the first place it fits, which is enough for `*` and never goes back (no ReDoS). */
function matchPiece(glob: string, text: string): boolean {
  const [first = "", ...rest] = glob.split("*");
  const last = rest.pop();
  if (last === undefined) return glob === text;
  if (!text.startsWith(first) || !text.endsWith(last) || text.length < first.length + last.length) return false;
  let from = first.length;
  for (const part of rest) {
    const at = text.indexOf(part, from);
    if (at < 0) return false;
    from = at + part.length;
  }
  return from <= text.length - last.length;
}
