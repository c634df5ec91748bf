import { durationsFigure } from "./figures/durations.ts";
import { densityFigure, throughputFigure } from "./figures/over-time.ts";
import { timelineFigure } from "./figures/timeline.ts";
import type { ReportData, ReportFleet } from "./measures/data.ts";
import { escaped, LONGEST } from "./measures/escaped.ts";
import { type Gathered, gather } from "./measures/gathered.ts";
import { histogramOf } from "./measures/histogram.ts";
import { counted, countText, durationText } from "./measures/quantity.ts";
import { pageHead, timeText } from "./page-head.ts";
import { PAGE_STYLE } from "./page-style.ts";
import { failuresTable, reasonsTable, slowestTable } from "./tables.ts";

/**
 * A fleet's report as one page that needs nothing besides itself, in pieces. Its size is bounded, whatever the number of items.
 * Keys and messages were chosen by manifests and workers: all text is escaped, and the page's own policy allows no script,
 * should one ever stand in it.
 */
export async function* reportHtml(data: ReportData): AsyncGenerator<string> {
  const gathered = await gather(data);
  yield pageStart(data.fleet);
  yield pageHead(data.fleet, gathered);
  yield* timelineSection(gathered);
  yield* durationsSection(gathered);
  yield* throughputSection(gathered);
  yield* slowestSection(gathered);
  yield* failuresSection(gathered, data.fleet);
  yield `<footer>Made by Corral, ${timeText(data.madeAt)}.</footer>\n</main>\n</body>\n</html>\n`;
}

function pageStart({ worker, id }: ReportFleet): string {
  return `<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta http-equiv="Content-Security-Policy" content="default-src 'none'; style-src 'unsafe-inline'; base-uri 'none'; form-action 'none'">
<meta name="referrer" content="no-referrer">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>${escaped(worker, LONGEST.word)} · fleet ${escaped(id, LONGEST.word)}</title>
<style>${PAGE_STYLE}</style>
</head>
<body>
<main>
`;
}

function* section(title: string, note: string, body: Iterable<string>): Generator<string> {
  yield `<section>\n<h2>${title}</h2>\n<p class="note">${note}</p>\n`;
  yield* body;
  yield "</section>\n";
}

/** A figure scrolls where a screen is too narrow for it. */
function* figure(pieces: Iterable<string>): Generator<string> {
  yield '<div class="wide">\n';
  yield* pieces;
  yield "</div>\n";
}

function* timelineSection({ span, cells, work, durations }: Gathered): Generator<string> {
  if (span === null || durations.count === 0) {
    yield* section("Timeline", "Nothing ran.", []);
    return;
  }
  const timeline = cells === null ? null : timelineFigure(cells, span);
  if (timeline !== null) {
    const note =
      "Each bar is one item in its cell, from start to end; a lane is a place where one cell runs at a time.";
    yield* section("Timeline", note, figure(timeline));
  } else {
    const note = `How many cells were at work, by what became of their items: the average of each ${durationText(work.widthMs)}.`;
    yield* section("Cells at work", note, figure(densityFigure(work, span)));
  }
}

function* durationsSection({ durations }: Gathered): Generator<string> {
  const histogram = histogramOf(durations);
  if (histogram === null) return;
  const scale = histogram.scale === "log" ? " Each step of the scale is a multiple of the one before." : "";
  const { min, max, mean } = durations;
  const note = `How long items took: from ${durationText(min ?? 0)} to ${durationText(max ?? 0)}, ${durationText(mean ?? 0)} on average.${scale}`;
  yield* section("Durations", note, figure(durationsFigure(histogram, durations)));
}

function* throughputSection({ span, ended }: Gathered): Generator<string> {
  if (span === null) return;
  const note = `Items that ended, cached ones among them: the rate of each ${durationText(ended.widthMs)}.`;
  yield* section("Throughput", note, figure(throughputFigure(ended, span)));
}

function* slowestSection({ slowest }: Gathered): Generator<string> {
  if (slowest.length === 0) return;
  yield* section("Slowest", `The ${counted(slowest.length, "item")} that took longest.`, slowestTable(slowest));
}

function* failuresSection({ failed, failures, reasons, done }: Gathered, { id }: ReportFleet): Generator<string> {
  if (failed === 0) {
    yield* section("Failures", done === 0 ? "Nothing is done." : "None.", []);
    return;
  }
  yield* section("Reasons", `Why ${counted(failed, "item")} did not succeed.`, reasonsTable(reasons));
  const all = `<code>corral fleet results ${escaped(id, LONGEST.word)} --jsonl</code> has all`;
  const note =
    failed > failures.length
      ? `The first ${countText(failures.length)} of ${countText(failed)}; ${all}.`
      : `${counted(failed, "item")} that did not succeed.`;
  yield* section("Failures", note, failuresTable(failures));
}
