import type { DoubleQuotedChild, ParsedScript, Word, WordPart } from "unbash";
import type { ShellWord } from "./pattern.ts";

/** Variables whose value a shell runs as commands, or as a file of commands. */
const RUN_BY_SHELLS = new Set(["BASH_ENV", "ENV", "PROMPT_COMMAND", "PS0", "PS1", "PS2", "PS4"]);

export function isRunByShells(variable: string): boolean {
  return RUN_BY_SHELLS.has(variable);
}

/** Why a command may set one of these variables by its last word here; null if it cannot. `before`: the first three words before it. */
export function whySetsRun(before: readonly PrintedWord[], { start, value }: PrintedWord): string | null {
  if (!mayName(before)) return null;
  if (value === null && /^[-A-Za-z0-9_]*$/.test(start)) return "which variable it sets is not known before it runs";
  const named = /^(?:-[A-Za-z]*?)?([A-Z_0-9]+)(?:\+?=|\[|$)/.exec(start)?.[1] ?? "";
  return isRunByShells(named) ? `shells run what ${named} names` : null;
}

/** Other builtins that set variables count as commands that hide others. */
function mayName([command, option, ...more]: readonly PrintedWord[]): boolean {
  // In `printf -v NAME` the option comes before the format.
  if (command?.value === "printf") return option === undefined || (option.value === "-v" && more.length === 0);
  return SETTING.has(command?.value ?? "");
}

const SETTING = new Set(["export", "readonly", "read", "mapfile", "readarray"]);

/** Where a word is. `value`: after `NAME=`, where shells neither split nor expand patterns. `target`: of a redirection. */
export type WordPlace = "command" | "argument" | "value" | "target";

export interface PrintedWord {
  readonly text: string;
  readonly value: ShellWord;
  /** Its literal text before the first thing that the shell expands. */
  readonly start: string;
}

/** What a word needs of the printer of the whole line. */
export interface WordContext {
  /** The commands of a substitution, printed. */
  script(script: ParsedScript): string;
  /** Notes that a part cannot be printed. The text of the line is then not used. */
  opaque(part: { readonly pos: number; readonly end: number }, reason: string): void;
}

/** A piece of a word: text that we quote, or something that the shell expands, printed so that every shell reads it alike. */
type Piece = { readonly literal: string } | { readonly shell: string; readonly splits: boolean };

/** Prints a word with our own quotes. Only variables, command substitutions, `*`, `?`, `[a-z]` and a leading `~` remain for the shell. */
export function printedWord(word: Word, place: WordPlace, context: WordContext): PrintedWord {
  const pieces = joined(piecesOf(word, place, context));
  // A shell may split such a word or refuse it, each in its own manner.
  if (place === "target" && pieces.some((piece) => "shell" in piece && piece.splits))
    context.opaque(word, "not every shell expands the name of a file to redirect to");
  const [only] = pieces;
  if (pieces.length === 0) return { text: "''", value: "", start: "" };
  if (pieces.length === 1 && only !== undefined && "literal" in only)
    return { text: quotedIn(place, only.literal), value: only.literal, start: only.literal };
  const text = pieces.map((piece) => ("literal" in piece ? quoted(piece.literal) : piece.shell)).join("");
  return { text, value: null, start: only !== undefined && "literal" in only ? only.literal : "" };
}

/** Text as one word for any shell. Plain words stay as they are, so that people can read the line. */
export function quoted(text: string): string {
  const isPlain = /^([A-Za-z0-9_./:@%+,-]+|-[A-Za-z0-9_./:@%+,=-]+|[[\]=])$/.test(text);
  return isPlain ? text : inQuotes(text);
}

function inQuotes(text: string): string {
  return `'${text.replaceAll("'", "'\\''")}'`;
}

function quotedIn(place: WordPlace, text: string): string {
  // As a command, `if` is a keyword and `%1` a job; quoted they are names.
  const isName = /^([A-Za-z0-9_./-]+|\[)$/.test(text) && !KEYWORDS.has(text);
  return place === "command" && !isName ? inQuotes(text) : quoted(text);
}

const KEYWORDS = new Set(
  [
    "if then else elif fi do done case esac while until for in time function select coproc",
    // Of zsh and ksh.
    "repeat foreach end nocorrect noglob namespace always",
  ].flatMap((line) => line.split(" ")),
);

function joined(pieces: readonly Piece[]): readonly Piece[] {
  const result: Piece[] = [];
  for (const piece of pieces) {
    const last = result.at(-1);
    if (last !== undefined && "literal" in last && "literal" in piece)
      result[result.length - 1] = { literal: last.literal + piece.literal };
    else result.push(piece);
  }
  return result;
}

function piecesOf(word: Word, place: WordPlace, context: WordContext): readonly Piece[] {
  const { parts } = word;
  if (parts === undefined) return literalPieces(word, { isFirst: true, isLast: true, place }, context);
  return parts.flatMap((part, index) => {
    const at = { isFirst: index === 0, isLast: index === parts.length - 1, place };
    return part.type === "Literal" ? literalPieces(part, at, context) : [pieceOf(part, place, context)];
  });
}

interface LiteralPlace {
  readonly isFirst: boolean;
  readonly isLast: boolean;
  readonly place: WordPlace;
}

interface LiteralText {
  readonly text: string;
  readonly value: string;
  readonly pos: number;
  readonly end: number;
}

function literalPieces(
  literal: LiteralText,
  { isFirst, isLast, place }: LiteralPlace,
  context: WordContext,
): readonly Piece[] {
  const { text, value } = literal;
  if (text.includes("\\\n")) context.opaque(literal, CONTINUED);
  if (place === "value" && /:~/.test(text)) context.opaque(literal, "`:~` is a home directory; write its path");
  if (!isFirst || !text.startsWith("~")) return [{ literal: value }];
  if (text === "~" && isLast) return [{ shell: "~", splits: false }];
  if (text.startsWith("~/"))
    return [{ shell: "~/", splits: false }, ...(value.length > 2 ? [{ literal: value.slice(2) }] : [])];
  context.opaque(literal, "`~` and a name is another user's home directory; write its path, or quote it");
  return [];
}

const CONTINUED = "a word continues on the next line, which shells read differently; write it on one line";

function pieceOf(part: Exclude<WordPart, { type: "Literal" }>, place: WordPlace, context: WordContext): Piece {
  switch (part.type) {
    case "SingleQuoted":
      return { literal: part.value };
    case "DoubleQuoted":
      return doubleQuoted(part.parts, context);
    case "Glob":
      if (place === "value") return { literal: part.text };
      if (part.kind === "bracket" && !/^\[!?[A-Za-z0-9_.-]+\]$/.test(part.text))
        context.opaque(
          part,
          "not every shell reads its bracket pattern alike; use letters, digits and `-`, or quote it",
        );
      return { shell: part.text, splits: true };
    case "SimpleExpansion":
    case "ParameterExpansion":
    case "CommandExpansion":
    case "ArithmeticExpansion":
      return place === "value" ? doubleQuoted([part], context) : { shell: expansion(part, context), splits: true };
    case "AnsiCQuoted":
      context.opaque(part, "`$'…'` has another meaning in sh; write `'…'`");
      break;
    case "LocaleString":
      context.opaque(part, '`$"…"` has another meaning in sh; write `"…"`');
      break;
    case "ProcessSubstitution":
      context.opaque(part, "sh has no process substitution; use a pipe or a file");
      break;
    case "ExtendedGlob":
      context.opaque(part, "not every shell supports its extended glob");
      break;
    case "BraceExpansion":
      context.opaque(part, "sh does not expand `{…}`; write the words out, or quote it");
      break;
  }
  return { literal: "" };
}

function doubleQuoted(parts: readonly DoubleQuotedChild[], context: WordContext): Piece {
  for (const part of parts) if (part.type === "Literal" && part.text.includes("\\\n")) context.opaque(part, CONTINUED);
  const literals = parts.flatMap((part) => (part.type === "Literal" ? [part.value] : []));
  if (literals.length === parts.length) return { literal: literals.join("") };
  const inner = parts.map((part) =>
    part.type === "Literal" ? part.value.replaceAll(/["\\$`]/g, "\\$&") : expansion(part, context),
  );
  return { shell: `"${inner.join("")}"`, splits: false };
}

/** In braces, so that no text after it becomes a part of the name. */
function expansion(part: Exclude<DoubleQuotedChild, { type: "Literal" }>, context: WordContext): string {
  switch (part.type) {
    case "SimpleExpansion":
      return variable(part.text.slice(1), part, context);
    case "ParameterExpansion": {
      const { prefix, index, operation, parameter } = part;
      if (prefix === undefined && index === undefined && operation === undefined)
        return variable(parameter, part, context);
      context.opaque(part, "shells read an operator of an expansion differently; use the variable's name alone");
      return "";
    }
    case "CommandExpansion": {
      const isKnown = /^(\$\(|`)/.test(part.text);
      if (part.script === undefined || !isKnown) {
        context.opaque(part, "it has a substitution that cannot be parsed");
        return "";
      }
      const inner = context.script(part.script);
      // `$((` would be arithmetic.
      return `$(${inner.startsWith("(") ? " " : ""}${inner})`;
    }
    case "ArithmeticExpansion":
      context.opaque(part, "arithmetic can run the text of a variable, and sh reads some of it as commands");
      return "";
  }
}

function variable(name: string, part: DoubleQuotedChild, context: WordContext): string {
  if (!/^([A-Za-z_][A-Za-z0-9_]{0,127}|[0-9]{1,3}|[?#@*$!-])$/.test(name))
    context.opaque(part, "it expands what is not a variable's name");
  return `\${${name}}`;
}
