import type { CommandArgument, Word, WordPart } from "unbash";
import type { ShellWord } from "./pattern.ts";

/** What a program will get for this argument, or null where that is up to the shell: expansions, globs, braces, `~`. */
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

/** Where `~` may be a home directory: at the beginning, and after `=` and `:`. Quoted and escaped ones are not. */
function hasTilde({ text, parts }: Word): boolean {
  if (parts === undefined) return mayBeHome(text, true);
  return parts.some((part, index) => part.type === "Literal" && mayBeHome(part.text, index === 0));
}

function mayBeHome(text: string, atStart: boolean): boolean {
  const unescaped = text.replaceAll(/\\[\s\S]/g, "\\");
  return (atStart && unescaped.startsWith("~")) || /[=:]~/.test(unescaped);
}
