import { OUTCOMES } from "../measures/outcome.ts";
import { countText, durationText, rateText } from "../measures/quantity.ts";
import { ticksUpTo } from "../measures/scale.ts";
import type { TimeBin, TimeBins } from "../measures/time-bins.ts";
import { at, baseAxis, FIGURE_END, figureStart, valueAxis } from "./frame.ts";
import { stackedBar, sum } from "./stacked-bars.ts";
import { TimeAxis } from "./time-axis.ts";

const HEIGHT = 200;

/** Items that ended per second, or per minute where they are few, by what became of them. */
export function* throughputFigure(
  ended: TimeBins,
  span: { readonly fromMs: number; readonly toMs: number },
): Generator<string> {
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
  yield figureStart({ id: "throughput", title: "Throughput over time", description, height: HEIGHT });
  yield valueAxis(
    ticks.map((value) => ({ share: value / unit.seconds / max, label: `${tickText(value)}/${unit.label}` })),
    HEIGHT,
  );
  for (const { bin, perSecond } of bins) {
    if (sum(perSecond) === 0) continue;
    const x = axis.x(bin.fromMs);
    const width = axis.x(bin.toMs) - x;
    const shown = { x, width: width > 4 ? width - 1 : Math.max(0.5, width), values: perSecond };
    yield stackedBar({ ...shown, title: titleOf(bin, bin.fromMs - span.fromMs) }, max, HEIGHT);
  }
  yield baseAxis(axis.ticks(), HEIGHT);
  yield FIGURE_END;
}

function tickText(value: number): string {
  return value >= 1000 ? countText(value) : at(value);
}

function titleOf({ amounts, fromMs, toMs }: TimeBin, sinceMs: number): string {
  const told = OUTCOMES.map(({ label }, index) => ({ label, items: amounts[index] ?? 0 }))
    .filter(({ items }) => items > 0)
    .map(({ label, items }) => `${countText(items)} ${label}`);
  return `after ${durationText(sinceMs)}, in ${durationText(toMs - fromMs)}: ${told.join(", ")}`;
}
