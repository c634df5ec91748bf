import { escaped, LONGEST } from "../measures/escaped.ts";
import { counted, countText, durationText, type ItemSpan, isSuccess } from "../measures/gathered.ts";
import { type Histogram, lanesOf, logTimeTicks, ticksUpTo, timeTicks } from "../measures/histogram.ts";
import type { DurationStatistics } from "../measures/statistics.ts";
import {
  at,
  baseAxis,
  FIGURE_END,
  figureStart,
  INNER,
  LEFT,
  type Tick,
  TimeAxis,
  type TimeSpan,
  TOP,
  valueAxis,
} from "./frame.ts";

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
