import type { SealedRecord } from "../audit/seal.ts";
import { printableLine } from "../operations/wording/printable.ts";
import { columns } from "./terminal/terminal.ts";

const HEAD = ["TIME", "RUN", "WORKER", "WHAT", "OUTCOME"];

/** Records as a table. What stands in them was chosen by workers as well, so nothing of it reaches the terminal as it is. */
export function auditTable(records: readonly SealedRecord[]): string {
  const rows = records.map((record) => {
    const { what, outcome } = wordsOf(record);
    const worker = record.worker === undefined ? "-" : printableLine(record.worker, 40);
    return [
      record.at,
      printableLine(record.run ?? "-", 20),
      worker,
      printableLine(what, 100),
      printableLine(outcome, 120),
    ];
  });
  return columns([HEAD, ...rows]);
}

interface Words {
  readonly what: string;
  readonly outcome: string;
}

/** A record that another version wrote may lack anything, and is shown for what it has. */
function wordsOf(record: SealedRecord): Words {
  const { type } = record;
  switch (type) {
    case "run_requested":
      return { what: record.parent === null ? "run" : `call by ${text(record.parent)}`, outcome: "requested" };
    case "run_started":
      return { what: "run", outcome: `started with ${listed(record.mounts, mountWords) || "no files"}` };
    case "agent_started":
      return {
        what: "agent",
        outcome: `started on ${text(record.model)} with ${listed(record.tools) || "no tools"}; ${listed(record.mounts, mountWords) || "no files"}`,
      };
    case "tool_used":
      return { what: `tool ${text(record.tool)} ${onWords(record.on)}`.trim(), outcome: usedWords(record) };
    case "run_ended":
      return {
        what: "run",
        outcome: [text(record.status), exitWords(record), countWords(record.changes)].filter(Boolean).join(", "),
      };
    case "refused":
      return { what: "run", outcome: `refused: ${listed(record.codes)}` };
    case "approval":
      return {
        what: askedWords(record),
        outcome: `${text(record.outcome)} (${text(record.scope)}): ${text(record.reason)}`,
      };
    case "grant":
      return {
        what: `grant ${text(record.directory)} ${text(record.mode)}`,
        outcome: `granted (${text(record.scope)})`,
      };
    case "grant_revoked":
      return { what: `grant ${text(record.directory)}`, outcome: `revoked: ${text(record.reason)}` };
    case "changes_applying":
      return { what: `changes ${text(record.changeset)}`, outcome: `applying ${text(record.count)}` };
    case "changes_applied":
      return { what: `changes ${text(record.changeset)}`, outcome: countWords(record.counts) || "none" };
    case "changes_discarded":
      return { what: `changes ${text(record.changeset)}`, outcome: `discarded ${text(record.count)}` };
    case "pushed":
      return {
        what: `push to ${text(record.repo)}`,
        outcome: `pushed ${text(record.commit).slice(0, 12)} to ${text(record.branch)}`,
      };
    case "repaired":
      return { what: "audit trail", outcome: `repaired: ${text(record.what)}, ${text(record.bytes)} bytes` };
    default:
      return { what: type, outcome: "" };
  }
}

/** What a tool was used on: the values alone, which are paths, commands and names. */
function onWords(on: unknown): string {
  return typeof on === "object" && on !== null ? Object.values(on).map(text).join(" ") : "";
}

function usedWords(record: SealedRecord): string {
  const { ok, status, code, message } = record;
  if (ok === true) return typeof status === "string" ? [status, exitWords(record)].filter(Boolean).join(", ") : "done";
  return `refused: ${text(code)}${message === undefined ? "" : ` ${text(message)}`}`;
}

function askedWords({ operations, command, directory, paths }: SealedRecord): string {
  const asked = listed(operations);
  if (typeof command === "string") return `${asked} ${command}`;
  return `${asked} ${typeof directory === "string" ? directory : listed(paths)}`;
}

function exitWords({ exitCode, signal }: SealedRecord): string {
  if (typeof signal === "string") return signal;
  return typeof exitCode === "number" && exitCode !== 0 ? `exit code ${exitCode}` : "";
}

function countWords(counts: unknown): string {
  if (typeof counts !== "object" || counts === null) return "";
  return Object.entries(counts)
    .map(([outcome, count]) => `${text(count)} ${outcome}`)
    .join(", ");
}

function mountWords(mount: unknown): string {
  const { path, mode } = Object(mount) as { path?: unknown; mode?: unknown };
  return `${text(path)} ${text(mode)}`;
}

const MAX_LISTED = 5;

/** The first of a list, and how many more there are; the trail itself marks what it left out. */
function listed(list: unknown, words: (item: unknown) => string = text): string {
  if (!Array.isArray(list)) return "";
  const shown = list.slice(0, MAX_LISTED).map(words).join(", ");
  return list.length > MAX_LISTED ? `${shown} and ${list.length - MAX_LISTED} more` : shown;
}

function text(value: unknown): string {
  return typeof value === "string" || typeof value === "number" ? String(value) : "-";
}
