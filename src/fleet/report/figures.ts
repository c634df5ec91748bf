import { counted, countText, durationText, rateText } from "../../text/amounts.ts";
import { escaped, type ItemSpan, isSuccess, LONGEST, OUTCOMES } from "./measures/gathered.ts";
import {
  type DurationStatistics,
  type Histogram,
  lanesOf,
  logTimeTicks,
  type TimeBin,
  type TimeBins,
  ticksUpTo,
  timeTicks,
} from "./measures/statistics.ts";

/** The width of every figure; the page scales it. */
const WIDTH = 960;
const LEFT = 56;
const RIGHT = 20;
const TOP = 14;
const BOTTOM = 30;
/** The width between the margins. */
const INNER = WIDTH - LEFT - RIGHT;

/** A number for an attribute, with two decimals. */
function at(value: number): string {
  return String(Number(value.toFixed(2)));
}

interface FigureFrame {
  /** Unique in the page. */
  readonly id: string;
  /** A text alternative for screen readers. */
  readonly title: string;
  readonly description: string;
  /** The height without margins. */
  readonly height: number;
}

/** The start of a figure; {@link FIGURE_END} ends it. */
function figureStart({ id, title, description, height }: FigureFrame): string {
  const whole = height + TOP + BOTTOM;
  return `<svg viewBox="0 0 ${WIDTH} ${whole}" role="img" aria-labelledby="${id}-title ${id}-description" xmlns="http://www.w3.org/2000/svg">
<title id="${id}-title">${escaped(title)}</title>
<desc id="${id}-description">${escaped(description)}</desc>
`;
}

const FIGURE_END = "</svg>\n";

interface Tick {
  /** From 0 to 1 of the axis. */
  readonly share: number;
  readonly label: string;
}

/** Horizontal grid lines with their values on the left. */
function valueAxis(ticks: readonly Tick[], height: number): string {
  return ticks
    .map(({ share, label }) => {
      const y = at(TOP + height * (1 - share));
      return `<line class="grid" x1="${LEFT}" x2="${WIDTH - RIGHT}" y1="${y}" y2="${y}"/><text class="end" x="${LEFT - 8}" y="${y}" dy="4">${escaped(label)}</text>\n`;
    })
    .join("");
}

/** The horizontal axis with marks and values. */
function baseAxis(ticks: readonly Tick[], height: number): string {
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
interface TimeSpan {
  readonly fromMs: number;
  readonly toMs: number;
}

class TimeAxis {
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

/** With more lanes, each would be too thin to see. */
const MAX_LANES = 160;
const MAX_HEIGHT = 420;
const MAX_LANE_HEIGHT = 22;

/** Every cell as a bar, in lanes; null if there are too many lanes. */
export function timelineFigure(cells: readonly ItemSpan[], span: TimeSpan): Iterable<string> | null {
  const lanes = lanesOf(cells, MAX_LANES);
  return lanes === null ? null : drawn(cells, lanes, span);
}

function* drawn(cells: readonly ItemSpan[], lanes: readonly number[], span: TimeSpan): Generator<string> {
  const count = lanes.reduce((most, lane) => Math.max(most, lane + 1), 1);
  const laneHeight = Math.min(MAX_LANE_HEIGHT, MAX_HEIGHT / count);
  const height = laneHeight * count;
  const axis = new TimeAxis(span);
  const description = `${counted(cells.length, "item")} in ${counted(count, "lane")} over ${durationText(span.toMs - span.fromMs)}`;
  yield figureStart({ id: "timeline", title: "Timeline of cells", description, height });
  yield valueAxis(laneTicks(count), height);
  const gap = laneHeight > 6 ? 2 : laneHeight > 3 ? 1 : 0;
  const bars = cells.map((cell, index) => ({ cell, lane: lanes[index] ?? 0 }));
  // Failures are drawn last, on top of overlapping short bars.
  bars.sort((a, b) => Number(isSuccess(b.cell.status)) - Number(isSuccess(a.cell.status)));
  for (const { cell, lane } of bars) {
    const x = axis.x(cell.startMs);
    const width = axis.x(cell.endMs) - x;
    // A thin gap separates two cells of one lane.
    const shown = width > 4 ? width - 1 : Math.max(1, width);
    const y = TOP + lane * laneHeight + gap / 2;
    yield `<rect class="${cell.outcome}" x="${at(x)}" y="${at(y)}" width="${at(shown)}" height="${at(laneHeight - gap)}"><title>${titleOf(cell, span.fromMs)}</title></rect>\n`;
  }
  yield baseAxis(axis.ticks(), height);
  yield FIGURE_END;
}

/** The first lane is at the top. If there are many lanes, only some have a label. */
function laneTicks(count: number): Tick[] {
  const every = Math.ceil(count / 8);
  return Array.from({ length: count }, (_, lane) => lane)
    .filter((lane) => lane % every === 0)
    .map((lane) => ({ share: 1 - (lane + 0.5) / count, label: String(lane + 1) }));
}

function titleOf({ key, status, run, startMs, endMs }: ItemSpan, fromMs: number): string {
  const words = [
    `${escaped(key, LONGEST.key)}: ${escaped(status.replaceAll("_", " "), LONGEST.word)}`,
    `${durationText(endMs - startMs)}, started after ${durationText(startMs - fromMs)}`,
    ...(run === null ? [] : [`run ${escaped(run, LONGEST.word)}`]),
  ];
  return words.join("; ");
}

const HEIGHT = 200;
/** Labels of quantiles that are closer than this are placed one above the other. */
const LABEL_WIDTH = 92;

const QUANTILES = [
  { name: "p50", share: 0.5 },
  { name: "p90", share: 0.9 },
  { name: "p99", share: 0.99 },
] as const;

/** A histogram of durations, with the quantiles as lines. */
export function* durationsFigure(histogram: Histogram, statistics: DurationStatistics): Generator<string> {
  const axis = new DurationAxis(histogram);
  const ticks = ticksUpTo(Math.max(...histogram.bins.map(({ count }) => count), 4), 4);
  const max = ticks.at(-1) ?? 1;
  const lines = QUANTILES.map(({ name, share }) => ({ name, ms: statistics.quantile(share) ?? 0 }));
  const description = `${counted(statistics.count, "item")}: ${lines.map(({ name, ms }) => `${name} ${durationText(ms)}`).join(", ")}`;
  yield figureStart({ id: "durations", title: "Durations", description, height: HEIGHT });
  yield valueAxis(
    ticks.map((value) => ({ share: value / max, label: countText(value) })),
    HEIGHT,
  );
  for (const { fromMs, toMs, count } of histogram.bins) {
    if (count === 0) continue;
    const x = axis.x(fromMs);
    const height = Math.max(1, (HEIGHT * count) / max);
    const title = `${durationText(fromMs)} to ${durationText(toMs)}: ${counted(count, "item")}`;
    yield `<rect class="bar" x="${at(x + 0.5)}" y="${at(TOP + HEIGHT - height)}" width="${at(Math.max(1, axis.x(toMs) - x - 1))}" height="${at(height)}"><title>${title}</title></rect>\n`;
  }
  yield baseAxis(axis.ticks(), HEIGHT);
  let row = 0;
  let before = Number.NEGATIVE_INFINITY;
  for (const { name, ms } of lines) {
    const x = axis.x(ms);
    row = x - before < LABEL_WIDTH ? row + 1 : 0;
    before = x;
    yield quantileLine(x, row, `${name} ${durationText(ms)}`);
  }
  yield FIGURE_END;
}

/** A label is to the right of its line, or to the left near the right edge. */
function quantileLine(x: number, row: number, label: string): string {
  const toTheLeft = x > LEFT + INNER - LABEL_WIDTH;
  const text = `<text class="quantile ${toTheLeft ? "end" : "start"}" x="${at(x + (toTheLeft ? -5 : 5))}" y="${TOP + 9 + row * 16}">${label}</text>`;
  return `<line class="quantile" x1="${at(x)}" x2="${at(x)}" y1="${TOP - 4}" y2="${TOP + HEIGHT}"/>${text}\n`;
}

class DurationAxis {
  readonly #scale: Histogram["scale"];
  readonly #fromMs: number;
  readonly #toMs: number;

  constructor({ scale, bins }: Histogram) {
    this.#scale = scale;
    this.#fromMs = bins[0]?.fromMs ?? 0;
    this.#toMs = bins.at(-1)?.toMs ?? 1;
  }

  x(ms: number): number {
    return LEFT + INNER * Math.min(1, Math.max(0, this.#share(ms)));
  }

  ticks(): Tick[] {
    const ticks =
      this.#scale === "log" ? logTimeTicks(this.#fromMs, this.#toMs) : timeTicks(this.#fromMs, this.#toMs, 6);
    const labelled = ticks.map((ms) => ({ share: this.#share(ms), label: durationText(ms) }));
    return labelled.filter(({ label }, index) => label !== labelled[index - 1]?.label);
  }

  #share(ms: number): number {
    if (this.#scale === "linear") return (ms - this.#fromMs) / (this.#toMs - this.#fromMs);
    return Math.log(Math.max(ms, this.#fromMs) / this.#fromMs) / Math.log(this.#toMs / this.#fromMs);
  }
}

const DENSITY_HEIGHT = 240;
const THROUGHPUT_HEIGHT = 200;

/** The number of cells at work over time, by outcome of their items. */
export function* densityFigure(work: TimeBins, span: TimeSpan): Generator<string> {
  const axis = new TimeAxis(span);
  const bins = [...work].map((bin) => ({ bin, cells: bin.amounts.map((ms) => ms / coveredMs(bin, span)) }));
  const ticks = ticksUpTo(Math.max(...bins.map(({ cells }) => sum(cells)), 1), 4);
  const max = ticks.at(-1) ?? 1;
  const description = `Average number of cells at work in each ${durationText(work.widthMs)}, at most ${at(max)}`;
  yield figureStart({ id: "timeline", title: "Cells at work over time", description, height: DENSITY_HEIGHT });
  yield valueAxis(
    ticks.map((value) => ({ share: value / max, label: at(value) })),
    DENSITY_HEIGHT,
  );
  for (const { bin, cells } of bins) {
    if (sum(cells) === 0) continue;
    const x = axis.x(bin.fromMs);
    // The bars overlap slightly, so that the background does not show between them.
    const width = axis.x(bin.toMs) - x + 0.4;
    const title = `after ${durationText(bin.fromMs - span.fromMs)}: cells at work, ${byOutcome(cells, at)}`;
    yield stackedBar({ x, width, values: cells, title }, max, DENSITY_HEIGHT);
  }
  yield baseAxis(axis.ticks(), DENSITY_HEIGHT);
  yield FIGURE_END;
}

/** Items that ended per second (per minute for low rates), by outcome. */
export function* throughputFigure(ended: TimeBins, span: TimeSpan): Generator<string> {
  const axis = new TimeAxis(span);
  const bins = [...ended].map((bin) => ({
    bin,
    perSecond: bin.amounts.map((items) => (items * 1000) / ended.widthMs),
  }));
  const most = Math.max(...bins.map(({ perSecond }) => sum(perSecond)));
  const unit = most < 1 ? { seconds: 60, label: "min" } : { seconds: 1, label: "s" };
  const ticks = ticksUpTo(most * unit.seconds, 4);
  const max = (ticks.at(-1) ?? 1) / unit.seconds;
  const description = `Items that ended in each ${durationText(ended.widthMs)}, at most ${rateText(most)}`;
  yield figureStart({ id: "throughput", title: "Throughput over time", description, height: THROUGHPUT_HEIGHT });
  yield valueAxis(
    ticks.map((value) => ({ share: value / unit.seconds / max, label: `${tickText(value)}/${unit.label}` })),
    THROUGHPUT_HEIGHT,
  );
  for (const { bin, perSecond } of bins) {
    if (sum(perSecond) === 0) continue;
    const x = axis.x(bin.fromMs);
    const width = axis.x(bin.toMs) - x;
    const shown = { x, width: width > 4 ? width - 1 : Math.max(0.5, width), values: perSecond };
    const title = `after ${durationText(bin.fromMs - span.fromMs)}, in ${durationText(bin.toMs - bin.fromMs)}: ${byOutcome(bin.amounts, countText)}`;
    yield stackedBar({ ...shown, title }, max, THROUGHPUT_HEIGHT);
  }
  yield baseAxis(axis.ticks(), THROUGHPUT_HEIGHT);
  yield FIGURE_END;
}

/** The first and the last bin reach beyond the fleet. */
function coveredMs({ fromMs, toMs }: TimeBin, span: TimeSpan): number {
  return Math.max(1, Math.min(toMs, span.toMs) - Math.max(fromMs, span.fromMs));
}

function tickText(value: number): string {
  return value >= 1000 ? countText(value) : at(value);
}

/** `3 succeeded, 1 failed`: the outcomes that occur. */
function byOutcome(amounts: readonly number[], textOf: (amount: number) => string): string {
  return OUTCOMES.map(({ label }, index) => ({ label, amount: amounts[index] ?? 0 }))
    .filter(({ amount }) => amount > 0)
    .map(({ label, amount }) => `${textOf(amount)} ${label}`)
    .join(", ");
}

interface StackedBar {
  readonly x: number;
  readonly width: number;
  /** By outcome, in the order of `OUTCOMES`. */
  readonly values: readonly number[];
  /** The tooltip; already escaped. */
  readonly title: string;
}

/** One bar with a part for each outcome; `max` is the value at full height. */
function stackedBar({ x, width, values, title }: StackedBar, max: number, height: number): string {
  let y = TOP + height;
  const parts = OUTCOMES.map(({ outcome }, index) => {
    const part = (height * (values[index] ?? 0)) / max;
    if (part <= 0) return "";
    y -= part;
    return `<rect class="${outcome}" x="${at(x)}" y="${at(y)}" width="${at(width)}" height="${at(part)}"/>`;
  });
  return `<g class="stack"><title>${title}</title>${parts.join("")}</g>\n`;
}

function sum(values: readonly number[]): number {
  return values.reduce((total, value) => total + value, 0);
}
