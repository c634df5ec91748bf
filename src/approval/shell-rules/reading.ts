import { parse } from "unbash";
import { type ShellPart, shownPart } from "./part.ts";
import { LinePrinter, TooManyParts } from "./printed-line.ts";

/** A command line as Corral understands it. */
export interface Reading {
  /** Every simple command of the line, wherever it is, and what is beside the commands and needs consent. */
  readonly parts: readonly ShellPart[];
  /** The line, printed anew from these parts. This is what the shell gets. Null if a part is opaque. */
  readonly printed: string | null;
}

/** Far more than a person can review. */
const MAX_CHARACTERS = 65_536;
/** The kernel's limit for one argument is 131,072 bytes, and quotes make a line longer. */
const MAX_PRINTED_BYTES = 131_000;
/** Each is compared with every rule. A person reads far fewer. */
const MAX_PARTS = 1000;
/** Signs and words that can begin a nested part. The parser recurses with each level, so they are counted before it runs. */
const MAX_OPENINGS = 1000;
const OPENING = /[({[`!]|<<|\b(?:if|then|elif|else|while|until|do|for|select|case|function|coproc|time)\b/g;

/**
 * Reads a command line, and prints it anew. No parser of shell reads exactly as the shell does; so the text as written is never
 * run by a rule, only what was printed from the parts that were judged. Text that cannot be printed so is `opaque`.
 */
export function readLine(command: string): Reading {
  if (command.length > MAX_CHARACTERS) return opaque(command, `it is longer than ${MAX_CHARACTERS} characters`);
  if (/[^\P{Cc}\n\t]/u.test(command)) return opaque(command, "it contains control characters");
  if (!command.isWellFormed()) return opaque(command, "it is not valid Unicode");
  if ((command.match(OPENING)?.length ?? 0) > MAX_OPENINGS)
    return opaque(command, `it has more than ${MAX_OPENINGS} brackets and keywords`);
  try {
    const { parts, printed } = printedOf(command);
    if (parts.length > MAX_PARTS) throw new TooManyParts();
    if (printed === null) return { parts, printed };
    if (Buffer.byteLength(printed) > MAX_PRINTED_BYTES) return opaque(command, "it is too long with every word quoted");
    // A printed line that reads otherwise than it was meant would be a bug; no shell gets it.
    if (printedOf(printed).printed !== printed) return opaque(command, "its parts cannot be distinguished");
    return { parts, printed };
  } catch (error) {
    // Whatever the parser fails at, its meaning is unknown.
    return opaque(
      command,
      error instanceof TooManyParts ? `it has more than ${MAX_PARTS} commands` : "it cannot be parsed",
    );
  }
}

function printedOf(command: string): Reading {
  const printer = new LinePrinter(command, MAX_PARTS);
  const text = printer.script(parse(command));
  return { parts: printer.parts, printed: printer.isOpaque ? null : text };
}

function opaque(command: string, reason: string): Reading {
  return { parts: [{ kind: "opaque", text: shownPart(command), reason }], printed: null };
}
