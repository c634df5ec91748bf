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
 * A fleet's report as one self-contained page, in chunks. Its size is bounded for any number of items. Manifests and workers
 * choose keys and messages, so all text is escaped, and the page's security policy allows no script.
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
  yield `<footer>Created by Corral, ${timeText(data.madeAt)}.</footer>\n</main>\n</body>\n</html>\n`;
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

/** A figure scrolls if the screen is too narrow. */
function* figure(pieces: Iterable<string>): Generator<string> {
  yield '<div class="wide">\n';
  yield* pieces;
  yield "</div>\n";
}

function* timelineSection({ span, cells, work, durations }: Gathered): Generator<string> {
  if (span === null || durations.count === 0) {
    yield* section("Timeline", "No item ran.", []);
    return;
  }
  const timeline = cells === null ? null : timelineFigure(cells, span);
  if (timeline !== null) {
    const note = "Each bar is one item, from start to end. Each lane shows items that ran one after another.";
    yield* section("Timeline", note, figure(timeline));
  } else {
    const note = `Number of running cells by outcome of their items, averaged over each ${durationText(work.widthMs)}.`;
    yield* section("Cells at work", note, figure(densityFigure(work, span)));
  }
}

function* durationsSection({ durations }: Gathered): Generator<string> {
  const histogram = histogramOf(durations);
  if (histogram === null) return;
  const scale = histogram.scale === "log" ? " The time axis is logarithmic." : "";
  const { min, max, mean } = durations;
  const note = `Items took from ${durationText(min ?? 0)} to ${durationText(max ?? 0)}, ${durationText(mean ?? 0)} on average.${scale}`;
  yield* section("Durations", note, figure(durationsFigure(histogram, durations)));
}

function* throughputSection({ span, ended }: Gathered): Generator<string> {
  if (span === null) return;
  const note = `Rate of ended items, including cached ones, for each ${durationText(ended.widthMs)}.`;
  yield* section("Throughput", note, figure(throughputFigure(ended, span)));
}

function* slowestSection({ slowest }: Gathered): Generator<string> {
  if (slowest.length === 0) return;
  yield* section(
    "Slowest items",
    `The ${counted(slowest.length, "item")} with the longest duration.`,
    slowestTable(slowest),
  );
}

function* failuresSection({ failed, failures, reasons, done }: Gathered, { id }: ReportFleet): Generator<string> {
  if (failed === 0) {
    yield* section("Failures", done === 0 ? "No item has ended." : "None.", []);
    return;
  }
  yield* section("Reasons", `Why ${counted(failed, "item")} did not succeed.`, reasonsTable(reasons));
  const all = `<code>corral fleet results ${escaped(id, LONGEST.word)} --jsonl</code> lists all`;
  const note =
    failed > failures.length
      ? `The first ${countText(failures.length)} of ${countText(failed)}; ${all}.`
      : `${counted(failed, "item")} that did not succeed.`;
  yield* section("Failures", note, failuresTable(failures));
}
