import { escaped } from "../measures/escaped.ts";
import { durationText } from "../measures/gathered.ts";
import { timeTicks } from "../measures/histogram.ts";

/** The width of every figure; the page scales it. */
export const WIDTH = 960;
export const LEFT = 56;
export const RIGHT = 20;
export const TOP = 14;
export const BOTTOM = 30;
/** The width between the margins. */
export const INNER = WIDTH - LEFT - RIGHT;

/** A number for an attribute, with two decimals. */
export function at(value: number): string {
  return String(Number(value.toFixed(2)));
}

export interface FigureFrame {
  /** Unique in the page. */
  readonly id: string;
  /** A text alternative for screen readers. */
  readonly title: string;
  readonly description: string;
  /** The height without margins. */
  readonly height: number;
}

/** The start of a figure; {@link FIGURE_END} ends it. */
export function figureStart({ id, title, description, height }: FigureFrame): string {
  const whole = height + TOP + BOTTOM;
  return `<svg viewBox="0 0 ${WIDTH} ${whole}" role="img" aria-labelledby="${id}-title ${id}-description" xmlns="http://www.w3.org/2000/svg">
<title id="${id}-title">${escaped(title)}</title>
<desc id="${id}-description">${escaped(description)}</desc>
`;
}

export const FIGURE_END = "</svg>\n";

export interface Tick {
  /** From 0 to 1 of the axis. */
  readonly share: number;
  readonly label: string;
}

/** Horizontal grid lines with their values on the left. */
export function valueAxis(ticks: readonly Tick[], height: number): string {
  return ticks
    .map(({ share, label }) => {
      const y = at(TOP + height * (1 - share));
      return `<line class="grid" x1="${LEFT}" x2="${WIDTH - RIGHT}" y1="${y}" y2="${y}"/><text class="end" x="${LEFT - 8}" y="${y}" dy="4">${escaped(label)}</text>\n`;
    })
    .join("");
}

/** The horizontal axis with marks and values. */
export function baseAxis(ticks: readonly Tick[], height: number): string {
  const y = TOP + height;
  const marks = ticks.map(({ share, label }) => {
    const x = at(LEFT + INNER * share);
    // A centred label at the right end would be cut off.
    const anchor = share > 0.97 ? "end" : "middle";
    return `<line class="axis" x1="${x}" x2="${x}" y1="${y}" y2="${y + 5}"/><text class="${anchor}" x="${x}" y="${y + 19}">${escaped(label)}</text>\n`;
  });
  return `<line class="axis" x1="${LEFT}" x2="${WIDTH - RIGHT}" y1="${y}" y2="${y}"/>\n${marks.join("")}`;
}

/** Milliseconds since 1970. */
export interface TimeSpan {
  readonly fromMs: number;
  readonly toMs: number;
}

/** A time span on the horizontal axis. */
export class TimeAxis {
  readonly #fromMs: number;
  readonly #spanMs: number;

  constructor({ fromMs, toMs }: TimeSpan) {
    this.#fromMs = fromMs;
    this.#spanMs = Math.max(1, toMs - fromMs);
  }

  x(ms: number): number {
    return LEFT + INNER * Math.min(1, Math.max(0, (ms - this.#fromMs) / this.#spanMs));
  }

  /** Labelled with the time since the start. */
  ticks(): Tick[] {
    return timeTicks(0, this.#spanMs).map((ms) => ({ share: ms / this.#spanMs, label: durationText(ms) }));
  }
}
