import { OUTCOMES } from "../measures/outcome.ts";
import { durationText } from "../measures/quantity.ts";
import { ticksUpTo } from "../measures/scale.ts";
import type { TimeBin, TimeBins } from "../measures/time-bins.ts";
import { at, baseAxis, FIGURE_END, figureStart, valueAxis } from "./frame.ts";
import { stackedBar, sum } from "./stacked-bars.ts";
import { TimeAxis } from "./time-axis.ts";

const HEIGHT = 240;

/** How many cells were at work over time, by what became of their items. */
export function* densityFigure(
  work: TimeBins,
  span: { readonly fromMs: number; readonly toMs: number },
): Generator<string> {
  const axis = new TimeAxis(span);
  const bins = [...work].map((bin) => ({ bin, cells: bin.amounts.map((ms) => ms / coveredMs(bin, span)) }));
  const ticks = ticksUpTo(Math.max(...bins.map(({ cells }) => sum(cells)), 1), 4);
  const max = ticks.at(-1) ?? 1;
  const description = `Average number of cells at work in each ${durationText(work.widthMs)}, at most ${at(max)}`;
  yield figureStart({ id: "timeline", title: "Cells at work over time", description, height: HEIGHT });
  yield valueAxis(
    ticks.map((value) => ({ share: value / max, label: at(value) })),
    HEIGHT,
  );
  for (const { bin, cells } of bins) {
    if (sum(cells) === 0) continue;
    const x = axis.x(bin.fromMs);
    // They overlap a little, so that no line of the page shows between two.
    const width = axis.x(bin.toMs) - x + 0.4;
    yield stackedBar({ x, width, values: cells, title: titleOf(cells, bin.fromMs - span.fromMs) }, max, HEIGHT);
  }
  yield baseAxis(axis.ticks(), HEIGHT);
  yield FIGURE_END;
}

/** The first and the last bin reach beyond the fleet. */
function coveredMs({ fromMs, toMs }: TimeBin, span: { readonly fromMs: number; readonly toMs: number }): number {
  return Math.max(1, Math.min(toMs, span.toMs) - Math.max(fromMs, span.fromMs));
}

function titleOf(cells: readonly number[], sinceMs: number): string {
  const told = OUTCOMES.map(({ label }, index) => ({ label, cells: cells[index] ?? 0 }))
    .filter((series) => series.cells > 0)
    .map((series) => `${at(series.cells)} ${series.label}`);
  return `after ${durationText(sinceMs)}: cells at work, ${told.join(", ")}`;
}
