import { type FailureGroup, type ItemResult, isFailure } from "../../fleet/model/item.ts";
import { OUTCOMES, outcomeOf } from "../../fleet/report/measures/gathered.ts";
import type { FleetSummary } from "../../fleet/running/events.ts";
import { counted, countText, durationText, rateText } from "../../text/amounts.ts";
import { printable, printableLine } from "../../text/visible.ts";
import type { FleetView } from "./witness.ts";

/** Messages that are printed one by one up to a number, and only counted after that. */
export class Quota {
  readonly #max: number;
  #asked = 0;

  constructor(max: number) {
    this.#max = max;
  }

  /** True if it should be printed. */
  take(): boolean {
    this.#asked += 1;
    return this.#asked <= this.#max;
  }

  /** True once: with the first that is not printed. */
  get isJustExceeded(): boolean {
    return this.#asked === this.#max + 1;
  }

  /** How many were not printed. */
  get beyond(): number {
    return Math.max(0, this.#asked - this.#max);
  }
}

/** How a fleet ended: the status of its items, why some did not succeed, and what the user can do. */
export function summaryText(summary: FleetSummary): string {
  const { fleet, state, why, items, done, durationMs } = summary;
  const reason = why === null ? "" : `: ${printableLine(why, 500)}`;
  const lines = [
    `corral: fleet ${printableLine(fleet, 40)} ${STATES[state]} after ${durationText(durationMs)}, ${countText(done)} of ${counted(items, "item")} done${reason}`,
    ...countedLines(statusesOf(summary)),
  ];
  lines.push(...failuresText(summary));
  return [...lines, ...ways(summary)].join("\n");
}

const STATES: Readonly<Record<FleetSummary["state"], string>> = {
  running: "is still running",
  done: "is done",
  pending: "is pending",
  paused: "is paused",
  cancelled: "was cancelled",
};

function statusesOf({ byStatus }: FleetSummary): [string, number][] {
  const rank = (status: string): number => OUTCOMES.findIndex(({ outcome }) => outcome === outcomeOf(status));
  return Object.entries(byStatus)
    .sort(([a, many], [b, few]) => rank(a) - rank(b) || few - many)
    .map(([status, count]) => [status.replaceAll("_", " "), count]);
}

/** Failed items by their last words. What is in no group is counted together. */
function failuresText({ failures, byStatus }: FleetSummary): string[] {
  if (failures.length === 0) return [];
  const failed = Object.entries(byStatus).filter(([status]) => isFailure(status));
  const others =
    failed.reduce((sum, [, count]) => sum + count, 0) - failures.reduce((sum, { count }) => sum + count, 0);
  return [
    "corral: failures:",
    ...failures.map((group) => `  ${groupText(group)}`),
    ...(others > 0 ? [`  ${counted(others, "other item")}`] : []),
  ];
}

/** `312 items: Couldn't find trailer dictionary (e.g. inbox/a.pdf)`. */
export function groupText({ count, status, text, example }: FailureGroup): string {
  const how = status === "failed" ? "" : `${printableLine(status.replaceAll("_", " "), 40)}: `;
  return `${counted(count, "item")}: ${how}${printableLine(text, 300)} (e.g. ${printableLine(example, 120)})`;
}

function countedLines(counts: readonly [string, number][]): string[] {
  const width = Math.max(0, ...counts.map(([, count]) => countText(count).length));
  return counts.map(([name, count]) => `  ${countText(count).padStart(width)}  ${printableLine(name, 80)}`);
}

/** The next command, where there is one. */
function ways({ fleet, state, byReason, byStatus: { pending = 0 } }: FleetSummary): string[] {
  const id = printableLine(fleet, 40);
  const review =
    pending === 0
      ? []
      : [`corral: ${changesOf(pending)} for consent: \`corral changes apply --fleet ${id}\` shows and applies them`];
  if (state === "paused") return [...review, `corral: \`corral fleet resume ${id}\` continues it`];
  if (Object.keys(byReason).length === 0) return review;
  return [
    ...review,
    `corral: \`corral fleet results ${id} --jsonl\` lists each, \`corral fleet retry ${id} --failed\` retries them`,
  ];
}

function changesOf(pending: number): string {
  return `the changes of ${counted(pending, "item")} wait`;
}

/** That the items are known. */
export function loadedText(fleet: string, items: number, done: number, what = "fleet"): string {
  const before = done === 0 ? "" : `, ${countText(done)} of them already done`;
  return `corral: ${what} ${printableLine(fleet, 80)}: ${counted(items, "item")}${before}`;
}

/** How far it is, in one line. */
export function progressText(view: FleetView): string {
  const { items, done, pending, notPossible, running, elsewhere, recentRate, leftMs } = view;
  // As the items that are done, with those of before.
  const failed = view.failed - notPossible + view.failedEarlier;
  const percent = items === 0 ? 100 : Math.floor((done * 100) / items);
  const left = leftMs === null ? "" : `, about ${durationText(Math.ceil(leftMs / 1000) * 1000)} left`;
  // With all items elsewhere, nothing runs here.
  const away = `${elsewhere > 0 && running === 0 ? "" : `${countText(running)} running, `}${elsewhere === 0 ? "" : `${countText(elsewhere)} elsewhere, `}`;
  return `corral: ${countText(done)} of ${countText(items)} done (${percent}%), ${countText(failed)} failed, ${notPossible === 0 ? "" : `${countText(notPossible)} not possible, `}${pending === 0 ? "" : `${countText(pending)} pending, `}${away}${rateText(recentRate)}${left}`;
}

/** One item that did not succeed: first the last words of its worker. */
export function failureText({ key, status, error }: ItemResult): string {
  const why = error === null ? "" : `: ${printableLine(error.message, 1000)}`;
  return `corral: ${printableLine(key)} ${printableLine(status.replaceAll("_", " "), 40)}${why}`;
}

/** What the Engine or the host said; it is for people, and may hold host paths. */
export function fleetTroubleText(detail: string): string {
  return `corral: error: ${printable(detail)}`;
}

/** The database of the fleets is away, or back. */
export function awayText(
  event: { readonly type: "waiting"; readonly why: string } | { readonly type: "continued" },
): string {
  if (event.type === "continued") return "corral: the queue answers again";
  return `corral: waits for the queue, and tries again until it is there. ${printable(event.why)}`;
}

/** Why nothing seems to run. */
export function readingText(key: string): string {
  return `corral: ${printableLine(key)}: its files are read first, which takes long. \
--no-cache leaves out comparing them with those of an earlier result, --reuse fresh copying them for a container of many items`;
}

export function drainingText(why: string): string {
  return `corral: no more items are started: ${printableLine(why, 500)}`;
}
