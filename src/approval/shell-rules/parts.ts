import type { CommandArgument, Word, WordPart } from "unbash";
import { type Command, forEachChild, parse, type Redirection, type Script, type SyntaxNode } from "unbash";
import { opaqueness } from "./opaque.ts";
import type { ShellWord } from "./pattern.ts";

/** A part of a command line that needs consent. `text` is the part as written, shortened. */
export type ShellPart =
  | { readonly kind: "command"; readonly text: string; readonly words: readonly ShellWord[]; readonly beside: Beside }
  | { readonly kind: "assignment" | "redirection"; readonly text: string }
  | { readonly kind: "opaque"; readonly text: string; readonly reason: string };

/** What a command has beside its words that changes its effect; null for nothing. */
export type Beside = "assignment" | "redirection" | "input" | null;

/** Far more than a person can review. */
const MAX_CHARACTERS = 65_536;
/** Levels of the syntax tree; each nested substitution takes five. */
const MAX_DEPTH = 250;
/** Signs and words that can begin a nested part. The parser recurses with each level, so they are counted before it runs. */
const MAX_OPENINGS = 1000;
const OPENING = /[({[`!]|\b(?:if|then|elif|else|while|until|do|for|select|case|function|coproc|time)\b/g;
const MAX_SHOWN = 200;

/**
 * Every simple command of a command line, also in lists, pipelines, subshells, substitutions, here-documents, functions
 * and loops. Text that cannot be parsed, or that bash and sh read differently, is `opaque`.
 */
export function shellParts(command: string): readonly ShellPart[] {
  if (command.length > MAX_CHARACTERS) return [opaque(command, `it is longer than ${MAX_CHARACTERS} characters`)];
  if (/[^\P{Cc}\n\t]/u.test(command)) return [opaque(command, "it contains control characters")];
  if ((command.match(OPENING)?.length ?? 0) > MAX_OPENINGS)
    return [opaque(command, `it has more than ${MAX_OPENINGS} brackets and keywords`)];
  try {
    return analysed(command);
  } catch {
    // Whatever the parser fails at, nobody knows what it does.
    return [opaque(command, "it cannot be parsed")];
  }
}

function analysed(command: string): readonly ShellPart[] {
  const parts: ShellPart[] = [];
  const visit = (node: SyntaxNode, outer: string, depth: number): void => {
    const source = sourceOf(node, outer);
    if (depth > MAX_DEPTH) {
      parts.push(opaque(source.slice(node.pos, node.end), "it is nested too deeply"));
      return;
    }
    parts.push(...partsOf(node, source));
    forEachChild(node, (child) => visit(child, source, depth + 1));
  };
  visit(parse(command), command, 0);
  return parts;
}

/** The parser unescapes the content of escaped backticks; positions inside refer to that text. */
function sourceOf(node: SyntaxNode, outer: string): string {
  return node.type === "Script" ? ((node as Script).source ?? outer) : outer;
}

function partsOf(node: SyntaxNode, source: string): ShellPart[] {
  const text = source.slice(node.pos, node.end);
  const reason = opaqueness(node, text);
  if (reason !== null) return [opaque(text, reason)];
  switch (node.type) {
    case "Command":
      return [commandPart(node, text)];
    case "For":
    case "Select":
      return [{ kind: "assignment", text: shortened(text) }];
    case "Redirected":
      return node.redirects.every(isHarmless) ? [] : [{ kind: "redirection", text: shortened(text) }];
    default:
      return [];
  }
}

function commandPart(node: Command, text: string): ShellPart {
  const beside = besideOf(node);
  if (node.name === undefined) return { kind: beside === "assignment" ? beside : "redirection", text: shortened(text) };
  return { kind: "command", text: shortened(text), words: [wordOf(node.name), ...node.args.map(argumentOf)], beside };
}

function besideOf({ prefix, redirects }: Command): Beside {
  if (prefix.some((entry) => entry.type === "Assignment")) return "assignment";
  const changing = redirects.filter((redirect) => !isHarmless(redirect));
  if (changing.length === 0) return null;
  return changing.some((redirect) => redirect.type === "Redirect") ? "redirection" : "input";
}

/** `2>&1`, `2>&-` and `/dev/null` open no file. */
function isHarmless(redirect: Redirection): boolean {
  if (redirect.type !== "Redirect" || redirect.descriptor?.type === "FileDescriptorVariable") return false;
  const target = redirect.target === undefined ? null : wordOf(redirect.target);
  if (target === "/dev/null") return true;
  return target !== null && /^[<>]&$/.test(redirect.operator) && /^(\d+|-)$/.test(target);
}

function opaque(text: string, reason: string): ShellPart {
  return { kind: "opaque", text: shortened(text), reason };
}

/** A person reads this text in a terminal before approving: control and formatting characters become visible escapes. */
function shortened(text: string): string {
  const visible = text
    .slice(0, MAX_SHOWN)
    .replaceAll(/[^\P{C}\n\t]/gu, (hidden) => `\\u{${hidden.codePointAt(0)?.toString(16)}}`);
  return text.length > MAX_SHOWN ? `${visible}…` : visible;
}

/** The argument that the program gets; null if it depends on the shell (expansions, globs, braces, `~`). */
export function argumentOf(argument: CommandArgument): ShellWord {
  if (argument.type === "Word") return wordOf(argument);
  if (argument.value.type !== "Word" || argument.index !== undefined) return null;
  const value = wordOf(argument.value);
  return value === null ? null : `${argument.name}${argument.append ? "+" : ""}=${value}`;
}

export function wordOf(word: Word): ShellWord {
  const parts = word.parts ?? [];
  if (!parts.every(isLiteral)) return null;
  return hasTilde(word) ? null : word.value;
}

function isLiteral(part: WordPart): boolean {
  if (part.type === "DoubleQuoted") return part.parts.every((inner) => inner.type === "Literal");
  return part.type === "Literal" || part.type === "SingleQuoted";
}

/** True if `~` may mean a home directory: at the start and after `=` or `:`, unless quoted or escaped. */
function hasTilde({ text, parts }: Word): boolean {
  if (parts === undefined) return mayBeHome(text, true);
  return parts.some((part, index) => part.type === "Literal" && mayBeHome(part.text, index === 0));
}

function mayBeHome(text: string, atStart: boolean): boolean {
  const unescaped = text.replaceAll(/\\[\s\S]/g, "\\");
  return (atStart && unescaped.startsWith("~")) || /[=:]~/.test(unescaped);
}
