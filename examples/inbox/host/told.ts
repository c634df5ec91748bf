import type { SealedRecord } from "../../../src/audit/seal.ts";

/** One use of a tool by an agent, from the audit trail. */
export interface Act {
  /** The tool and its target. */
  readonly what: string;
  /** Why it was refused or failed; null if it succeeded. */
  readonly refused: string | null;
}

/** What an agent did after it read a letter, until it read the next one. */
export interface Told {
  readonly letter: string;
  readonly acts: readonly Act[];
}

/**
 * The acts of an agent, grouped by the letter that it had read last. `said`: the output of each command, by its command
 * line; the audit trail never contains output.
 */
export function toldBy(records: readonly SealedRecord[], said: ReadonlyMap<string, string>): Told[] {
  const told: { letter: string; acts: Act[] }[] = [];
  for (const record of records) {
    if (record.type !== "tool_used") continue;
    const letter = letterOf(record);
    if (letter !== null) told.push({ letter, acts: [] });
    else told.at(-1)?.acts.push(actOf(record, said));
  }
  return told;
}

const LETTERS = "/letters/";

function letterOf({ tool, ok, on }: SealedRecord): string | null {
  const { path } = Object(on) as { path?: unknown };
  const isRead = tool === "read_file" && ok === true && typeof path === "string" && path.startsWith(LETTERS);
  return isRead ? path.slice(LETTERS.length) : null;
}

function actOf(record: SealedRecord, said: ReadonlyMap<string, string>): Act {
  const on = Object(record.on) as Readonly<Record<string, unknown>>;
  return { what: `${record.tool} ${Object.values(on).join(" ")}`.trim(), refused: refusalOf(record, on.command, said) };
}

function refusalOf(record: SealedRecord, command: unknown, said: ReadonlyMap<string, string>): string | null {
  const { ok, code, message, status, exitCode } = record;
  if (ok !== true) return `${code}: ${firstLine(String(message))}`;
  if (status === undefined || status === "succeeded") return null;
  const ended = typeof exitCode === "number" ? `exit code ${exitCode}` : String(status);
  return `${ended}: ${firstLine(said.get(String(command)) ?? "")}`;
}

/** Removes the mark before the text that a command wrote to its standard error. */
function firstLine(text: string): string {
  return text.replace(/^\[standard error\]\n/, "").split("\n")[0] ?? "";
}
