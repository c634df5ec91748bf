import { escaped, LONGEST } from "../measures/escaped.ts";
import type { Cell } from "../measures/gathered.ts";
import { lanesOf } from "../measures/lanes.ts";
import { isSuccess } from "../measures/outcome.ts";
import { counted, durationText } from "../measures/quantity.ts";
import { at, baseAxis, FIGURE_END, figureStart, type Tick, TimeAxis, type TimeSpan, TOP, valueAxis } from "./frame.ts";

/** With more lanes, each would be too thin to see. */
const MAX_LANES = 160;
const MAX_HEIGHT = 420;
const MAX_LANE_HEIGHT = 22;

/** Every cell as a bar, in lanes; null if there are too many lanes. */
export function timelineFigure(cells: readonly Cell[], span: TimeSpan): Iterable<string> | null {
  const lanes = lanesOf(cells, MAX_LANES);
  return lanes === null ? null : drawn(cells, lanes, span);
}

function* drawn(cells: readonly Cell[], lanes: readonly number[], span: TimeSpan): Generator<string> {
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

function titleOf({ key, status, run, startMs, endMs }: Cell, fromMs: number): string {
  const words = [
    `${escaped(key, LONGEST.key)}: ${escaped(status.replaceAll("_", " "), LONGEST.word)}`,
    `${durationText(endMs - startMs)}, started after ${durationText(startMs - fromMs)}`,
    ...(run === null ? [] : [`run ${escaped(run, LONGEST.word)}`]),
  ];
  return words.join("; ");
}
