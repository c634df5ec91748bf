import type { ShellWord } from "./pattern.ts";

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
