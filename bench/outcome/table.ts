import { loadText, machineText } from "./machine-text.ts";
import { numberText } from "./number-text.ts";
import { type BenchReport, type Group, nameAtAnyConcurrency, type Target } from "./report.ts";
import { isMet } from "./targets.ts";

/** The report as Markdown that is also readable as plain text. */
export function tablesOf({ machine, level, durationMs, groups, targets, notes }: BenchReport): string {
  const head = `${machineText(machine)}; ${loadText(machine)}; level ${level}, ${Math.round(durationMs / 1000)} s.`;
  const noteList = notes.map((note) => `- ${note}`).join("\n");
  return [head, ...groups.map(groupTable), targetTable(targets), noteList].filter((part) => part !== "").join("\n\n");
}

export function groupTable({ title, unit, rows }: Group): string {
  const head = [title, `p50 ${unit}`, "p99", "ratio", "rounds"];
  const lines = rows.map(({ name, p50, p99, ratio, rounds }) => [
    name,
    numberText(p50),
    numberText(p99),
    ratio === null ? "–" : `×${numberText(ratio)}`,
    String(rounds),
  ]);
  return aligned([head, ...lines]);
}

/** Without what only says how sure a number is. */
export function shortTable({ title, unit, rows }: Group): string {
  const [base] = rows;
  const shown = unit === "items/s" ? "items a second" : unit;
  if (rows.every(({ ratio }) => ratio === null))
    return aligned([[title, shown], ...rows.map(({ name, p50 }) => [name, numberText(p50)])]);
  const head = [title, shown, `to ${base === undefined ? "" : nameAtAnyConcurrency(base.name)}`];
  return aligned([
    head,
    ...rows.map(({ name, p50, ratio }) => [name, numberText(p50), ratio === null ? "–" : `×${numberText(ratio)}`]),
  ]);
}

function targetTable(targets: readonly Target[]): string {
  const lines = targets.map((target) => {
    const met = isMet(target);
    return [
      target.what,
      measuredText(target),
      `${target.bound} ${target.wanted}`,
      { true: "met", false: "missed", null: "–" }[`${met}`],
    ];
  });
  return aligned([["target", "measured", "wanted", ""], ...lines]);
}

function measuredText({ measured, passes = [] }: Target): string {
  if (measured === null) return "not measured";
  if (passes.length < 2) return numberText(measured);
  return `${numberText(measured)} (${numberText(Math.min(...passes))} to ${numberText(Math.max(...passes))})`;
}

/** A Markdown table with aligned columns: the first to the left, the others to the right. */
function aligned(lines: readonly (readonly string[])[]): string {
  const [head = []] = lines;
  const widths = head.map((_, column) => Math.max(3, ...lines.map((line) => [...(line[column] ?? "")].length)));
  const shown = lines.map(
    (line) => `| ${line.map((cell, column) => padded(cell, widths[column] ?? 0, column)).join(" | ")} |`,
  );
  const rule = `| ${widths.map((width, column) => (column === 0 ? "-".repeat(width) : `${"-".repeat(width - 1)}:`)).join(" | ")} |`;
  return [shown[0], rule, ...shown.slice(1)].join("\n");
}

function padded(cell: string, width: number, column: number): string {
  const room = " ".repeat(width - [...cell].length);
  return column === 0 ? `${cell}${room}` : `${room}${cell}`;
}
