import type { KeptChange, ListedChangeset } from "../../operations/changeset-facts.ts";
import { type Colors, quotedLines } from "../../operations/wording/quoted-lines.ts";
import { printableLine, visibleName } from "../../text/visible.ts";
import { paintOf } from "../terminal/diff-colors.ts";
import { columns } from "../terminal/terminal.ts";

/** `2 applied, 1 conflict`. */
export function countsText(changes: readonly { readonly outcome: string }[]): string {
  const counts = new Map<string, number>();
  for (const { outcome } of changes) counts.set(outcome, (counts.get(outcome) ?? 0) + 1);
  return [...counts].map(([outcome, count]) => `${count} ${outcome}`).join(", ") || "nothing";
}

/** One line for each changeset; with its project where those of several are shown. */
export function listText(listed: readonly ListedChangeset[], withProject: boolean): string {
  const rows = listed.map((one) => {
    if (!one.ok) return [one.id, "-", "cannot be read", "-", ...(withProject ? ["-"] : [])];
    const { worker, createdAt, project, counts } = one;
    const text = Object.entries(counts).map(([outcome, count]) => `${count} ${outcome}`);
    const state = [...(one.applying ? ["applying"] : []), ...text].join(", ") || "nothing";
    return [one.id, printableLine(worker, 40), state, createdAt, ...(withProject ? [printableLine(project)] : [])];
  });
  return columns([["ID", "WORKER", "CHANGES", "CREATED", ...(withProject ? ["PROJECT"] : [])], ...rows]);
}

export function changesText(changes: readonly KeptChange[]): string {
  const rows = changes.map(({ kind, type, path, bytes, outcome, reason, hostExecuted }) => {
    const what = type === "file" ? kind : `${kind} ${type}`;
    return [what, visibleName(path), bytes === null ? "-" : String(bytes), outcome, whyText(reason, hostExecuted)];
  });
  return columns([["CHANGE", "PATH", "BYTES", "STATE", "REASON"], ...rows]);
}

function whyText(reason: string | null, hostExecuted: string | null): string {
  const executed = hostExecuted === null || reason?.includes(hostExecuted) === true ? [] : [hostExecuted];
  return printableLine([...executed, ...(reason === null ? [] : [reason])].join("; "), 400);
}

/** A diff for a terminal: no line of it can be taken for one of Corral's own. */
export function diffText(diff: string, width: number, colors: Colors): string {
  const lines = diff.split("\n").flatMap((line) => quotedLines(line, width, paintOf(line, colors)));
  return lines.join("\n");
}
