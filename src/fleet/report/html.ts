import { counted, countText, durationText, rateText, roughBytesText } from "../../text/amounts.ts";
import { densityFigure, durationsFigure, throughputFigure, timelineFigure } from "./figures.ts";
import {
  escaped,
  type Gathered,
  gather,
  LONGEST,
  OUTCOMES,
  outcomeOf,
  pageStart,
  type Reason,
  type ReportData,
  type ReportFleet,
  type ReportItem,
} from "./measures/gathered.ts";
import { histogramOf } from "./measures/statistics.ts";

interface Column<Row> {
  readonly head: string;
  readonly kind: "number" | "key" | "status" | "message" | "";
  /** Returns escaped HTML. */
  readonly cell: (row: Row) => string;
}

/** Yields row by row, so that the page is never in memory as a whole. `label` names the table for screen readers. */
function* table<Row>(label: string, columns: readonly Column<Row>[], rows: Iterable<Row>): Generator<string> {
  // A scrollable region needs a tab stop for keyboard users.
  yield `<div class="wide" role="region" aria-label="${label}" tabindex="0"><table aria-label="${label}">\n<thead><tr>`;
  for (const { head, kind } of columns) yield `<th scope="col"${classOf(kind)}>${head}</th>`;
  yield "</tr></thead>\n<tbody>\n";
  for (const row of rows) {
    yield `<tr>${columns.map(({ kind, cell }) => `<td${classOf(kind)}>${cell(row)}</td>`).join("")}</tr>\n`;
  }
  yield "</tbody>\n</table></div>\n";
}

function classOf(kind: string): string {
  return kind === "" ? "" : ` class="${kind}"`;
}

const REASON_COLUMNS: readonly Column<Reason>[] = [
  { head: "Items", kind: "number", cell: ({ count }) => countText(count) },
  { head: "Last line", kind: "message", cell: ({ text }) => `<bdi>${escaped(text)}</bdi>` },
  { head: "Code", kind: "", cell: ({ code }) => `<code>${escaped(code, LONGEST.word)}</code>` },
  { head: "For example", kind: "key", cell: ({ example }) => `<bdi>${escaped(example, LONGEST.key)}</bdi>` },
];

const KEY: Column<ReportItem> = {
  head: "Item",
  kind: "key",
  cell: ({ key }) => `<bdi>${escaped(key, LONGEST.key)}</bdi>`,
};
const STATUS: Column<ReportItem> = {
  head: "Status",
  kind: "status",
  cell: ({ status }) => `<i class="${outcomeOf(status)}"></i>${escaped(status.replaceAll("_", " "), LONGEST.word)}`,
};
const DURATION: Column<ReportItem> = {
  head: "Duration",
  kind: "number",
  cell: ({ durationMs }) => durationText(durationMs),
};
const RUN: Column<ReportItem> = {
  head: "Run",
  kind: "",
  cell: ({ run }) => (run === null ? "–" : `<code>${escaped(run, LONGEST.word)}</code>`),
};

const SLOWEST_COLUMNS: readonly Column<ReportItem>[] = [
  KEY,
  STATUS,
  DURATION,
  {
    head: "Peak memory",
    kind: "number",
    cell: ({ memoryBytesPeak }) => (memoryBytesPeak === null ? "–" : roughBytesText(memoryBytesPeak)),
  },
  { head: "Attempt", kind: "number", cell: ({ attempt }) => countText(attempt) },
  RUN,
];

const FAILURE_COLUMNS: readonly Column<ReportItem>[] = [
  KEY,
  STATUS,
  {
    head: "Code",
    kind: "",
    cell: ({ error, exitCode }) =>
      `<code>${escaped(error?.code ?? "–", LONGEST.word)}</code>${exitCode === null ? "" : ` (${exitCode})`}`,
  },
  { head: "Message", kind: "message", cell: ({ error }) => `<bdi>${escaped(error?.message ?? "")}</bdi>` },
  DURATION,
  RUN,
];

/** The page's style. It loads nothing, and follows the reader's light or dark mode. */
const PAGE_STYLE = `
:root {
  color-scheme: light dark;
  --page: #f4f5f7; --card: #ffffff; --line: #dfe3e8; --ink: #1c2129; --soft: #5c6673; --accent: #3a6ea5;
  --succeeded: #17855f; --cached: #4f93c9; --pending: #b5467f; --failed: #c8372d; --limited: #c27400; --refused: #8557c2; --stopped: #737a85;
}
@media (prefers-color-scheme: dark) {
  :root {
    --page: #0e1217; --card: #171c23; --line: #2b333d; --ink: #e4e8ee; --soft: #98a3b1; --accent: #6fa3dc;
    --succeeded: #36a37b; --cached: #6cb2e6; --pending: #e57fb2; --failed: #ee6a5f; --limited: #e59f35; --refused: #b08aec; --stopped: #8b95a3;
  }
}
* { box-sizing: border-box; }
body { margin: 0; background: var(--page); color: var(--ink); font: 15px/1.5 system-ui, "Segoe UI", "DejaVu Sans", sans-serif; }
main { max-width: 1080px; margin: 0 auto; padding: 32px 20px 48px; }
h1 { margin: 0; font-size: 26px; line-height: 1.25; font-weight: 650; overflow-wrap: anywhere; }
h2 { margin: 0 0 2px; font-size: 17px; font-weight: 650; }
code { font: 0.92em ui-monospace, "DejaVu Sans Mono", Menlo, monospace; overflow-wrap: anywhere; }
.state { display: inline-block; vertical-align: 4px; margin-left: 10px; padding: 1px 10px; border: 1px solid var(--line); border-radius: 99px; background: var(--card); color: var(--soft); font-size: 13px; font-weight: 500; }
.about, .note { margin: 4px 0 0; color: var(--soft); overflow-wrap: anywhere; }
.note { margin-bottom: 14px; font-size: 13.5px; }
.tiles { display: grid; grid-template-columns: repeat(auto-fit, minmax(130px, 1fr)); gap: 12px; margin: 24px 0 20px; }
.tile { display: flex; flex-direction: column; justify-content: space-between; background: var(--card); border: 1px solid var(--line); border-radius: 10px; padding: 12px 14px; }
.tile dt { color: var(--soft); font-size: 13px; }
.tile dd { margin: 0; font-size: 22px; font-weight: 600; font-variant-numeric: tabular-nums; }
.whole { display: flex; height: 14px; border-radius: 7px; overflow: hidden; background: var(--line); }
.whole span { min-width: 3px; }
.legend { display: flex; flex-wrap: wrap; gap: 4px 20px; list-style: none; margin: 10px 0 0; padding: 0; font-size: 14px; }
.legend i { display: inline-block; width: 11px; height: 11px; margin-right: 7px; border-radius: 3px; background: var(--line); }
.legend b { font-weight: 600; font-variant-numeric: tabular-nums; }
section { margin-top: 20px; padding: 18px 20px; background: var(--card); border: 1px solid var(--line); border-radius: 12px; }
.wide { overflow-x: auto; }
svg { display: block; width: 100%; min-width: 640px; height: auto; }
svg text { fill: var(--soft); font: 12px system-ui, "Segoe UI", "DejaVu Sans", sans-serif; font-variant-numeric: tabular-nums; }
svg .end { text-anchor: end; }
svg .middle { text-anchor: middle; }
svg .start { text-anchor: start; }
svg .grid { stroke: var(--line); stroke-width: 1; }
svg .axis { stroke: var(--soft); stroke-width: 1; }
svg .stack { shape-rendering: crispEdges; }
svg .bar { fill: var(--accent); }
svg line.quantile { stroke: var(--ink); stroke-width: 1; stroke-dasharray: 3 3; }
svg text.quantile { fill: var(--ink); font-weight: 600; stroke: var(--card); stroke-width: 4px; paint-order: stroke; }
svg .succeeded { fill: var(--succeeded); } svg .cached { fill: var(--cached); } svg .pending { fill: var(--pending); } svg .failed { fill: var(--failed); }
svg .limited { fill: var(--limited); } svg .refused { fill: var(--refused); } svg .stopped { fill: var(--stopped); }
.whole .pending, i.pending { background: var(--pending); }
.whole .succeeded, i.succeeded { background: var(--succeeded); } .whole .cached, i.cached { background: var(--cached); }
.whole .failed, i.failed { background: var(--failed); } .whole .limited, i.limited { background: var(--limited); }
.whole .refused, i.refused { background: var(--refused); } .whole .stopped, i.stopped { background: var(--stopped); }
table { width: 100%; border-collapse: collapse; font-size: 13.5px; }
th { color: var(--soft); font-weight: 500; text-align: left; white-space: nowrap; }
th, td { padding: 6px 12px 6px 0; border-bottom: 1px solid var(--line); vertical-align: top; }
tbody tr:last-child td { border-bottom: 0; }
td.number, th.number { text-align: right; font-variant-numeric: tabular-nums; white-space: nowrap; }
td.key { min-width: 160px; max-width: 320px; overflow-wrap: anywhere; }
td.message { min-width: 220px; overflow-wrap: anywhere; }
td.status { white-space: nowrap; }
td.status i { display: inline-block; width: 9px; height: 9px; margin-right: 7px; border-radius: 3px; }
footer { margin-top: 20px; color: var(--soft); font-size: 13px; }
@media print { section { break-inside: avoid-page; } body { background: none; } }
`;

/**
 * A fleet's report as one self-contained page, in chunks. Its size is bounded for any number of items. Manifests and workers
 * choose keys and messages, so all text is escaped, and the page's security policy allows no script.
 */
export async function* reportHtml(data: ReportData): AsyncGenerator<string> {
  const gathered = await gather(data);
  const { worker, id } = data.fleet;
  yield pageStart(`${escaped(worker, LONGEST.word)} · fleet ${escaped(id, LONGEST.word)}`, PAGE_STYLE);
  yield "<main>\n";
  yield pageHead(data.fleet, gathered);
  yield* timelineSection(gathered);
  yield* durationsSection(gathered);
  yield* throughputSection(gathered);
  yield* slowestSection(gathered);
  yield* failuresSection(gathered, data.fleet);
  yield `<footer>Created by Corral, ${timeText(data.madeAt)}.</footer>\n</main>\n</body>\n</html>\n`;
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
  const note = `The ${counted(slowest.length, "item")} with the longest duration.`;
  yield* section("Slowest items", note, table("The slowest items", SLOWEST_COLUMNS, slowest));
}

function* failuresSection({ failed, failures, reasons, done }: Gathered, { id }: ReportFleet): Generator<string> {
  if (failed === 0) {
    yield* section("Failures", done === 0 ? "No item has ended." : "None.", []);
    return;
  }
  const why = `Why ${counted(failed, "item")} did not succeed.`;
  yield* section("Reasons", why, table("Reasons", REASON_COLUMNS, reasons));
  const all = `<code>corral fleet results ${escaped(id, LONGEST.word)} --jsonl</code> lists all`;
  const note =
    failed > failures.length
      ? `The first ${countText(failures.length)} of ${countText(failed)}; ${all}.`
      : `${counted(failed, "item")} that did not succeed.`;
  yield* section("Failures", note, table("Failures", FAILURE_COLUMNS, failures));
}

/** The fleet and its totals. */
function pageHead(fleet: ReportFleet, gathered: Gathered): string {
  const policy = fleet.policy === null ? "" : ` · policy ${escaped(fleet.policy, LONGEST.word)}`;
  const why = fleet.why === null ? "" : `<p class="about">${escaped(fleet.why)}</p>\n`;
  const ended = fleet.endedAt === null ? "" : `, ended ${timeText(fleet.endedAt)}`;
  return `<header>
<h1><bdi>${escaped(fleet.worker, LONGEST.word)}</bdi> × ${countText(fleet.items)}<span class="state">${escaped(fleet.state, LONGEST.word)}</span></h1>
<p class="about">Fleet <code>${escaped(fleet.id, LONGEST.word)}</code> · <bdi>${escaped(fleet.source)}</bdi> · ${escaped(fleet.reuse, LONGEST.word)} cells · concurrency ${escaped(String(fleet.concurrency), LONGEST.word)}${policy}</p>
<p class="about">Created ${timeText(fleet.createdAt)}${ended}</p>
${why}</header>
${tiles(fleet, gathered)}${shares(fleet, gathered)}`;
}

function tiles({ items }: ReportFleet, gathered: Gathered): string {
  const { done, failed, span, durations, memoryBytesPeak } = gathered;
  const wallMs = span === null ? 0 : span.toMs - span.fromMs;
  const entries: readonly (readonly [string, string | null])[] = [
    ["items done", done === items ? countText(done) : `${countText(done)} of ${countText(items)}`],
    ["not successful", countText(failed)],
    ["first start to last end", span === null ? null : durationText(wallMs)],
    ["throughput", wallMs === 0 ? null : rateText((done * 1000) / wallMs)],
    ["median", valueText(durations.quantile(0.5), durationText)],
    ["p99", valueText(durations.quantile(0.99), durationText)],
    ["peak memory of a cell", valueText(memoryBytesPeak, roughBytesText)],
  ];
  const tile = ([name, value]: readonly [string, string | null]): string =>
    `<div class="tile"><dt>${name}</dt><dd>${value ?? "–"}</dd></div>\n`;
  return `<dl class="tiles">\n${entries.map(tile).join("")}</dl>\n`;
}

function valueText(value: number | null, words: (value: number) => string): string | null {
  return value === null ? null : words(value);
}

/** One bar of all items by outcome, and the number of items for each status. */
function shares({ items }: ReportFleet, { done, byStatus, byOutcome }: Gathered): string {
  const left = Math.max(0, items - done);
  const parts = OUTCOMES.map(({ outcome, label }) => ({ outcome, label, count: byOutcome.get(outcome) ?? 0 }))
    .filter(({ count }) => count > 0)
    .map(({ outcome, label, count }) => ({
      words: `${countText(count)} ${label}`,
      span: `<span class="${outcome}" style="flex:${count}" title="${countText(count)} ${label}"></span>`,
    }));
  const rest = left === 0 ? "" : `<span style="flex:${left}" title="${countText(left)} not done"></span>`;
  const label = [...parts.map(({ words }) => words), ...(left === 0 ? [] : [`${countText(left)} not done`])].join(", ");
  const rank = (status: string): number => OUTCOMES.findIndex(({ outcome }) => outcome === outcomeOf(status));
  const statuses = [...byStatus].sort(([a, many], [b, few]) => rank(a) - rank(b) || few - many);
  const entries = statuses.map(
    ([status, count]) =>
      `<li><i class="${outcomeOf(status)}"></i>${escaped(status.replaceAll("_", " "), LONGEST.word)} <b>${countText(count)}</b></li>\n`,
  );
  if (left > 0) entries.push(`<li><i></i>not done <b>${countText(left)}</b></li>\n`);
  return `<div class="whole" role="img" aria-label="${label || counted(0, "item")}">${parts.map(({ span }) => span).join("")}${rest}</div>
<ul class="legend">
${entries.join("")}</ul>
`;
}

/** `2025-01-31 12:00:00 UTC`; text that is not a time is shown unchanged. */
function timeText(iso: string): string {
  const time = Date.parse(iso);
  if (Number.isNaN(time)) return escaped(iso, LONGEST.word);
  const [date = "", clock = ""] = new Date(time).toISOString().split("T");
  return `<time datetime="${new Date(time).toISOString()}">${date} ${clock.slice(0, 8)} UTC</time>`;
}
