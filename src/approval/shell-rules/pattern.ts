import { type Consent, isLooser } from "../../sandbox/approval.ts";

/** A part of a command line that needs consent. `text` is for people: the part as it runs, or as written if it is opaque. */
export type ShellPart =
  | SimpleCommand
  | { readonly kind: "assignment" | "redirection"; readonly text: string }
  | { readonly kind: "opaque"; readonly text: string; readonly reason: string };

export interface SimpleCommand {
  readonly kind: "command";
  readonly text: string;
  readonly words: readonly ShellWord[];
  /** It runs a command that its words do not show. Found once, since many rules judge the same command. */
  readonly hides: boolean;
  readonly beside: Beside;
}

/** What a command has beside its words that changes its effect; null for nothing. */
export type Beside = "assignment" | "redirection" | null;

const MAX_SHOWN = 200;

/** A person reads this text in a terminal before approving: control and formatting characters become visible escapes. */
export function shownPart(text: string): string {
  const visible = text
    .slice(0, MAX_SHOWN)
    .replaceAll(/[^\P{C}\n\t]/gu, (hidden) => `\\u{${hidden.codePointAt(0)?.toString(16)}}`);
  return text.length > MAX_SHOWN ? `${visible}…` : visible;
}

/** A word of a command as the program gets it; null if only the shell can know the word, or how many words it becomes. */
export type ShellWord = string | null;

/** `maybe`: it depends on words that are unknown until the shell runs. */
export type Match = "yes" | "maybe" | "no";

/**
 * Tests if a rule's pattern matches a simple command.
 *
 * A pattern is a list of words. `*` alone matches one word, and inside a word any part of it; `**` as the last word matches
 * any number of further words. Without `**` the pattern must match the whole command.
 *
 * A rule that lets a command run without a question is read narrowly: inside a word `*` matches neither `/` nor `..`, so
 * that `docs/*` does not match `docs/../keys`. A rule that asks or blocks is read widely: `*` matches `/`, and `rm` also
 * matches `/bin/rm`.
 */
export function matchRule({ pattern, approval }: ShellRule, words: readonly ShellWord[]): Match {
  const { expected, open } = parsePattern(pattern);
  const narrow = approval === "pre_approved";
  const unknownAt = words.indexOf(null);
  const known = unknownAt < 0 ? words.length : unknownAt;
  if (known > expected.length && !open) return "no";
  const fits = expected.every((glob, index) => {
    const word = index < known ? words[index] : null;
    return (
      typeof word !== "string" || matchWord(glob, word, narrow) || (index === 0 && !narrow && matchName(glob, word))
    );
  });
  if (!fits) return "no";
  if (known < expected.length) return unknownAt < 0 ? "no" : "maybe";
  return unknownAt < 0 || open ? "yes" : "maybe";
}

/** True if the rule has no wildcard, so that its author saw the whole command. */
export function spellsOut({ pattern }: ShellRule): boolean {
  return !pattern.includes("*");
}

/** The number of literal characters in a rule's pattern. */
export function specificity({ pattern }: ShellRule): number {
  return pattern.replaceAll(/[\s*]/g, "").length;
}

function parsePattern(pattern: string): { readonly expected: readonly string[]; readonly open: boolean } {
  const words = pattern.split(/\s+/).filter((word) => word !== "");
  const open = words.at(-1) === "**";
  return { expected: open ? words.slice(0, -1) : words, open };
}

/** Matches `rm` with `/usr/bin/rm`: a path must not bypass a rule that asks or blocks. */
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

/** Matches each literal part at its first position. That is enough for `*` and never backtracks (no ReDoS). */
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

/**
 * Which shell commands a worker may run, and with which consent.
 *
 * This is consent, not capability: the sandbox of the cell limits what a command can reach, whatever the rules say.
 */
export interface ShellRules {
  /** For a command that matches no rule. */
  readonly default: Consent;
  readonly rules: readonly ShellRule[];
}

export interface ShellRule {
  /** Words in the syntax of `pattern.ts`: `git status`, `git log **`. */
  readonly pattern: string;
  readonly approval: Consent;
  /** Shown to the person who is asked and to the refused worker. */
  readonly why?: string;
  /** What such a command has beyond the others of its worker, while it runs: hosts of the worker's network; `true`: all of them. */
  readonly grants?: { readonly network: true | readonly string[] };
}

/**
 * The rule whose grants this line has: it is that one command and nothing beside it, by its exact words. Read narrowly, as for a rule that lets a command
 * run without a question.
 */
export function grantingRule(parts: readonly ShellPart[], { rules }: ShellRules): ShellRule | null {
  const [only, ...others] = parts;
  if (only?.kind !== "command" || others.length > 0 || only.hides || only.beside !== null) return null;
  const { words } = only;
  const matching = rules.filter((rule) => matchRule(rule, words) !== "no");
  if (matching.some(({ approval }) => approval === "blocked")) return null;
  const surely = matching.filter((rule) => matchRule({ ...rule, approval: "pre_approved" }, words) === "yes");
  const [best = null] = surely.toSorted((a, b) => specificity(b) - specificity(a));
  return best?.grants === undefined ? null : best;
}

/** The consent for text that cannot be analysed: the strictest rule could match it. */
export function strictestConsent({ default: otherwise, rules }: ShellRules): Consent {
  return rules.reduce((strictest, rule) => stricterOf(strictest, rule.approval), otherwise);
}

export function stricterOf(a: Consent, b: Consent): Consent {
  return isLooser(a, b) ? b : a;
}
