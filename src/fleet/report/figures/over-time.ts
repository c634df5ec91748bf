import { countText, durationText, OUTCOMES, rateText } from "../measures/gathered.ts";
import { ticksUpTo } from "../measures/histogram.ts";
import type { TimeBin, TimeBins } from "../measures/time-bins.ts";
import { at, baseAxis, FIGURE_END, figureStart, TimeAxis, type TimeSpan, TOP, valueAxis } from "./frame.ts";

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
