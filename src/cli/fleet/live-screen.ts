import { createLogUpdate } from "log-update";
import type { ItemResult } from "../../fleet/model/item.ts";
import { isPendingStatus, isSuccess } from "../../fleet/report/measures/gathered.ts";
import type { FleetEvent, FleetSummary } from "../../fleet/running/events.ts";
import type { Colors } from "../../operations/wording/question-text.ts";
import { counted, countText, durationText, rateText, roughBytesText } from "../../text/amounts.ts";
import { printableLine } from "../../text/visible.ts";
import {
  colorsFor,
  columnsOf,
  type FleetScreen,
  fittedLine,
  type Piece,
  paddedText,
  say,
  type Terminal,
} from "../terminal/terminal.ts";
import {
  awayText,
  drainingText,
  failureText,
  fleetTroubleText,
  loadedText,
  progressText,
  Quota,
  readingText,
  summaryText,
} from "./text.ts";
import { type FleetView, FleetWitness } from "./witness.ts";

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
  const { succeeded, cached, failed, notPossible, pending, running, elsewhere, waiting, earlier } = view;
  const counts: readonly (readonly [string, number, Piece["paint"], boolean])[] = [
    ["✓", succeeded, colors.green, true],
    ["✗", failed - notPossible, colors.red, true],
    ["∅", notPossible, colors.yellow, notPossible > 0],
    // With all items elsewhere, nothing runs here.
    ["▸", running, colors.cyan, running > 0 || elsewhere === 0],
    ["⇄", elsewhere, colors.cyan, elsewhere > 0],
    ["≡", cached, colors.cyan, cached > 0],
    ["◇", pending, colors.magenta, pending > 0],
    ["↻", waiting, colors.yellow, waiting > 0],
    ["·", earlier, colors.dim, earlier > 0],
  ];
  const words = [
    "succeeded",
    "failed",
    "not possible",
    "running",
    "elsewhere",
    "cached",
    "pending",
    "to retry",
    "already done",
  ];
  const pieces = (worded: number): Piece[] =>
    counts.flatMap(([mark, count, paint, shown], index): Piece[] => {
      if (!shown) return [];
      const quiet = count === 0 ? colors.dim : paint;
      // The first is always shown, and has nothing before it.
      return [
        { text: `${index === 0 ? "" : "   "}${mark} `, ...(quiet && { paint: quiet }) },
        { text: `${countText(count)}${index < worded ? ` ${words[index]}` : ""}` },
      ];
    });
  // On a narrow terminal the marks alone stay: half of a word says less.
  const widthOf = (all: readonly Piece[]): number => columnsOf(all.map(({ text }) => text).join(""));
  const fitting = [words.length, 4].map(pieces).find((all) => widthOf(all) <= columns);
  return fittedLine(fitting ?? pieces(0), columns);
}

function paceLine(view: FleetView, { columns, colors, memoryBytes }: FleetDrawingStyle): string {
  const { recentRate, overallRate, leftMs, elapsedMs } = view;
  const left = leftMs === null ? "" : `about ${durationText(Math.ceil(leftMs / 1000) * 1000)} left   `;
  const elapsed = durationText(Math.floor(elapsedMs / 1000) * 1000);
  const parts = [
    `${rateText(recentRate)} (${rateText(overallRate)} overall)`,
    `${left}${elapsed} so far`,
    `memory ${roughBytesText(memoryBytes)}`,
  ];
  while (parts.length > 1 && columnsOf(parts.join("   ")) > columns) parts.pop();
  return fittedLine([{ text: parts.join("   "), paint: colors.dim }], columns);
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

/** Eight times a second, however much happens in between. */
const FRAME_MS = 125;
const MAX_TROUBLES = 50;

/** On a terminal: the status of the fleet, redrawn below the printed messages. */
export class LiveFleetScreen implements FleetScreen {
  readonly #terminal: Terminal;
  readonly #witness = new FleetWitness();
  readonly #update: ReturnType<typeof createLogUpdate>;
  readonly #timer: NodeJS.Timeout;
  readonly #troubles = new Quota(MAX_TROUBLES);
  #left = false;

  constructor(terminal: Terminal) {
    this.#terminal = terminal;
    this.#update = createLogUpdate(terminal.stderr);
    this.#timer = setInterval(() => this.#draw(), FRAME_MS);
    this.#timer.unref();
  }

  see(event: FleetEvent): void {
    this.#witness.see(event);
    if (event.type === "trouble" && this.#troubles.take()) this.tell(fleetTroubleText(event.detail));
    else if (event.type === "reading") this.tell(readingText(event.key));
    else if (event.type === "waiting" || event.type === "continued") this.tell(awayText(event));
  }

  tell(line: string): void {
    if (!this.#left) this.#update.clear();
    say(this.#terminal, line);
  }

  end(summary: FleetSummary): void {
    this.#leave();
    const { beyond } = this.#troubles;
    if (beyond > 0) this.tell(`corral: ${countText(beyond)} more errors`);
    this.tell(summaryText(summary));
  }

  [Symbol.dispose](): void {
    this.#leave();
  }

  /** Removes the drawing and gives the terminal back. */
  #leave(): void {
    if (this.#left) return;
    clearInterval(this.#timer);
    this.#left = true;
    this.#update.clear();
    // Shows the cursor again, which was hidden at the first frame.
    this.#update.done();
  }

  #draw(): void {
    const view = this.#witness.view();
    if (view.fleet === null) return;
    const { stderr, env } = this.#terminal;
    const columns = stderr.columns || 80;
    const rows = stderr.rows || 24;
    this.#update(
      drawFleet(view, { columns, rows, colors: colorsFor(stderr, env), memoryBytes: process.memoryUsage.rss() }),
    );
  }
}

const MAX_FAILURES = 20;
const EVERY_MS = 10_000;
const EVERY_PERCENT = 10;

/** Where standard error is no terminal: how far it is every 10 % or 10 seconds, the first failures, and how it ended. */
export class PlainFleetScreen implements FleetScreen {
  readonly #terminal: Terminal;
  readonly #witness = new FleetWitness();
  readonly #timer: NodeJS.Timeout;
  readonly #failures = new Quota(MAX_FAILURES);
  readonly #troubles = new Quota(MAX_TROUBLES);
  #items = 0;
  #done = 0;
  /** In tenths of the whole. */
  #toldTenth = 0;

  constructor(terminal: Terminal) {
    this.#terminal = terminal;
    this.#timer = setInterval(() => this.#tick(), EVERY_MS);
    this.#timer.unref();
  }

  see(event: FleetEvent): void {
    this.#witness.see(event);
    if (event.type === "loaded") {
      this.#items = event.items;
      this.#done = event.done;
      this.#toldTenth = this.#tenth;
      this.tell(loadedText(event.fleet, event.items, event.done, event.what));
    } else if (event.type === "settled" && event.retryInMs === null) this.#settle(event.result);
    else if (event.type === "trouble" && this.#troubles.take()) this.tell(fleetTroubleText(event.detail));
    else if (event.type === "reading") this.tell(readingText(event.key));
    else if (event.type === "draining") this.tell(drainingText(event.why));
    else if (event.type === "waiting" || event.type === "continued") this.tell(awayText(event));
  }

  tell(line: string): void {
    say(this.#terminal, line);
  }

  end(summary: FleetSummary): void {
    clearInterval(this.#timer);
    const { beyond } = this.#troubles;
    if (beyond > 0) this.tell(`corral: ${countText(beyond)} more errors`);
    this.tell(summaryText(summary));
  }

  [Symbol.dispose](): void {
    clearInterval(this.#timer);
  }

  get #tenth(): number {
    return this.#items === 0 ? 0 : Math.floor((this.#done * 100) / this.#items / EVERY_PERCENT);
  }

  #settle(result: ItemResult): void {
    this.#done += 1;
    if (!isSuccess(result.status) && !isPendingStatus(result.status)) {
      if (this.#failures.take()) this.tell(failureText(result));
      else if (this.#failures.isJustExceeded) this.tell("corral: further failures are only counted");
    }
    // The summary reports the whole.
    if (this.#tenth > this.#toldTenth && this.#done < this.#items) this.#progress();
  }

  #tick(): void {
    if (this.#items > 0) this.#progress();
  }

  #progress(): void {
    this.#toldTenth = this.#tenth;
    // A line that was just printed for its 10 % is not printed again for its 10 seconds.
    this.#timer.refresh();
    this.tell(progressText(this.#witness.view(0)));
  }
}
