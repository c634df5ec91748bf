import type { ReportFleet } from "./measures/data.ts";
import { escaped, LONGEST } from "./measures/escaped.ts";
import type { Gathered } from "./measures/gathered.ts";
import { OUTCOMES, outcomeOf } from "./measures/outcome.ts";
import { counted, countText, durationText, rateText, roughBytesText } from "./measures/quantity.ts";

/** The fleet and its totals. */
export function pageHead(fleet: ReportFleet, gathered: Gathered): string {
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
    ["median", textOf(durations.quantile(0.5), durationText)],
    ["p99", textOf(durations.quantile(0.99), durationText)],
    ["peak memory of a cell", textOf(memoryBytesPeak, roughBytesText)],
  ];
  const tile = ([name, value]: readonly [string, string | null]): string =>
    `<div class="tile"><dt>${name}</dt><dd>${value ?? "–"}</dd></div>\n`;
  return `<dl class="tiles">\n${entries.map(tile).join("")}</dl>\n`;
}

function textOf(value: number | null, words: (value: number) => string): string | null {
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
export function timeText(iso: string): string {
  const time = Date.parse(iso);
  if (Number.isNaN(time)) return escaped(iso, LONGEST.word);
  const [date = "", clock = ""] = new Date(time).toISOString().split("T");
  return `<time datetime="${new Date(time).toISOString()}">${date} ${clock.slice(0, 8)} UTC</time>`;
}
