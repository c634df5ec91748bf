import { counted, countText, durationText, rateText, roughBytesText } from "../../fleet/report/measures/quantity.ts";
import type { Colors } from "../../operations/wording/quoted-lines.ts";
import { printableLine } from "../../text/visible.ts";
import { columnsOf, fittedLine, type Piece, paddedText } from "../terminal/fitted-text.ts";
import type { FleetView } from "./witness.ts";

export interface FleetDrawingStyle {
  /** What the terminal has; the drawing stays within. */
  readonly columns: number;
  readonly rows: number;
  readonly colors: Colors;
  readonly memoryBytes: number;
}

const MAX_LISTED = 5;
const MAX_BAR = 50;
const MAX_KEY = 48;

/** The status of a fleet, for a terminal: lists are shorter or left out if there is no room for them. */
export function drawFleet(view: FleetView, style: FleetDrawingStyle): string {
  const head = [progressLine(view, style), countsLine(view, style), paceLine(view, style)];
  if (view.machines.length > 0) head.push(machinesLine(view, style));
  if (view.draining !== null) head.push(drainingLine(view.draining, style));
  // The cursor is on its own line below the drawing.
  const room = Math.max(1, style.rows - 1);
  // Each of the two lists has a heading.
  const listed = Math.min(MAX_LISTED, Math.floor((room - head.length) / 2) - 1);
  if (listed < 1) return head.slice(0, room).join("\n");
  return [...head, ...slowestLines(view, listed, style), ...failureLines(view, listed, style)].join("\n");
}

function progressLine({ items, done, failed }: FleetView, { columns, colors }: FleetDrawingStyle): string {
  const share = items === 0 ? 0 : Math.min(1, done / items);
  const words = ` ${Math.floor(share * 100)}%  ${countText(done)} of ${countText(items)}`;
  const width = Math.max(0, Math.min(MAX_BAR, columns - columnsOf(words)));
  const full = Math.floor(width * share);
  // A single failure among thousands is seen as well.
  const red = failed === 0 ? 0 : Math.min(full, Math.max(1, Math.round((width * failed) / Math.max(1, items))));
  const bar: Piece[] = [
    { text: "█".repeat(full - red), paint: colors.green },
    { text: "█".repeat(red), paint: colors.red },
    { text: "░".repeat(width - full), paint: colors.dim },
  ];
  return fittedLine([...bar, { text: words, paint: colors.bold }], columns);
}

function countsLine(view: FleetView, { columns, colors }: FleetDrawingStyle): string {
  const { succeeded, cached, failed, pending, running, elsewhere, waiting, earlier } = view;
  const counts: readonly (readonly [string, number, Piece["paint"], boolean])[] = [
    ["✓", succeeded, colors.green, true],
    ["✗", failed, colors.red, true],
    // With all items elsewhere, nothing runs here.
    ["▸", running, colors.cyan, running > 0 || elsewhere === 0],
    ["⇄", elsewhere, colors.cyan, elsewhere > 0],
    ["≡", cached, colors.cyan, cached > 0],
    ["◇", pending, colors.magenta, pending > 0],
    ["↻", waiting, colors.yellow, waiting > 0],
    ["·", earlier, colors.dim, earlier > 0],
  ];
  const words = ["succeeded", "failed", "running", "elsewhere", "cached", "pending", "to retry", "already done"];
  const pieces = counts.flatMap(([mark, count, paint, shown], index): Piece[] => {
    if (!shown) return [];
    const quiet = count === 0 ? colors.dim : paint;
    // The first is always shown, and has nothing before it.
    return [
      { text: `${index === 0 ? "" : "   "}${mark} `, ...(quiet && { paint: quiet }) },
      { text: `${countText(count)} ${words[index]}` },
    ];
  });
  return fittedLine(pieces, columns);
}

function paceLine(view: FleetView, { columns, colors, memoryBytes }: FleetDrawingStyle): string {
  const { recentRate, overallRate, leftMs, elapsedMs } = view;
  const left = leftMs === null ? "" : `about ${durationText(Math.ceil(leftMs / 1000) * 1000)} left   `;
  const elapsed = durationText(Math.floor(elapsedMs / 1000) * 1000);
  const words = `${rateText(recentRate)} (${rateText(overallRate)} overall)   ${left}${elapsed} so far   memory ${roughBytesText(memoryBytes)}`;
  return fittedLine([{ text: words, paint: colors.dim }], columns);
}

/** `on 3 machines: gpu-1 8, gpu-2 6, old-1 1`, cut where the line ends. */
function machinesLine({ machines }: FleetView, { columns, colors }: FleetDrawingStyle): string {
  const each = machines.map(({ name, running }) => `${printableLine(name, MAX_KEY)} ${countText(running)}`);
  const words = `on ${counted(machines.length, "machine")}: ${each.join(", ")}`;
  return fittedLine([{ text: words, paint: colors.dim }], columns);
}

function drainingLine(why: string, { columns, colors }: FleetDrawingStyle): string {
  return fittedLine([{ text: `no more items are started: ${printableLine(why, 300)}`, paint: colors.yellow }], columns);
}

function slowestLines({ slowest }: FleetView, listed: number, style: FleetDrawingStyle): string[] {
  const { cyan, dim } = style.colors;
  const rows = slowest.slice(0, listed).map(({ key, ms }): Row => {
    return { key, after: [{ text: `  ${durationText(Math.floor(ms / 100) * 100)}`, paint: dim }] };
  });
  return listLines("running longest", { text: "▸ ", paint: cyan }, rows, style);
}

function failureLines({ failures }: FleetView, listed: number, style: FleetDrawingStyle): string[] {
  const { red, dim } = style.colors;
  const rows = failures.slice(0, listed).map(({ key, status, error }): Row => {
    const why = error === null ? "" : printableLine(error.message, 300);
    const words = printableLine(status.replaceAll("_", " "), 40);
    return {
      key,
      after: [
        { text: `  ${words}`, paint: red },
        { text: `  ${why}`, paint: dim },
      ],
    };
  });
  return listLines("last failures", { text: "✗ ", paint: red }, rows, style);
}

interface Row {
  readonly key: string;
  readonly after: readonly Piece[];
}

function listLines(title: string, mark: Piece, rows: readonly Row[], { columns, colors }: FleetDrawingStyle): string[] {
  if (rows.length === 0) return [];
  const keys = rows.map(({ key }) => printableLine(key));
  const width = keyColumns(keys, columns);
  const lines = rows.map(({ after }, index) =>
    fittedLine([mark, { text: paddedText(keys[index] ?? "", width) }, ...after], columns),
  );
  return [fittedLine([{ text: title, paint: colors.dim }], columns), ...lines];
}

/** As wide as the longest needs it, and never more than half of the line. */
function keyColumns(keys: readonly string[], columns: number): number {
  const longest = Math.max(...keys.map(columnsOf));
  return Math.max(1, Math.min(longest, MAX_KEY, Math.floor(columns / 2)));
}
