import {
  escaped,
  REPORT_PAGE_END,
  reportPageStart,
  TABLE_END,
  tableStart,
} from "../../fleet/report/measures/gathered.ts";
import { counted, durationText } from "../../text/amounts.ts";
import type { ThreatReport, VerifyReport } from "./verify.ts";

/** `none`: the policy allows it, or has nothing of it. */
export type ThreatOutcome = "held" | "through" | "not tried" | "none";

export function threatOutcome({ tried, through, notTried }: ThreatReport): { is: ThreatOutcome; said: string } {
  if (through.length > 0) return { is: "through", said: `${through.length} of ${tried} got through` };
  if (notTried !== null) return { is: "not tried", said: "not tried" };
  return tried === 0 ? { is: "none", said: "nothing to try" } : { is: "held", said: `${tried} held` };
}

export function titleOf({ policy, runtime, driver, threats, cost, durationMs }: VerifyReport): string {
  const by = [driver ?? "no container", ...(runtime === null ? [] : [`runtime ${runtime}`])].join(", ");
  const sum = threats.reduce((all, { tried }) => all + tried, 0);
  const inSession = cost === null || cost.execMs === null ? "" : `, a command in a session ${cost.execMs} ms`;
  const costs =
    cost === null
      ? ""
      : `; a run takes ${cost.runMs} ms${inSession}, and a fleet starts ${cost.itemsPerSecond} containers a second`;
  return `Policy ${policy}, ${by}: ${counted(sum, "attack")} in ${durationText(durationMs)}${costs}`;
}

/** Of all reports, in one line. */
export function verdictOf(reports: readonly VerifyReport[]): string {
  const threats = reports.flatMap((report) => report.threats);
  const through = threats.reduce((all, threat) => all + threat.through.length, 0);
  if (through > 0) return `Not all of it held: ${counted(through, "attack")} got through.`;
  const untried = threats.filter(({ notTried }) => notTried !== null).length;
  if (untried === 0) return "All of it held.";
  return `What was tried held, and for ${counted(untried, "threat")} not everything could be tried.`;
}

/** Each thing that this machine cannot enforce, or lacks, once. */
export function hostLines(reports: readonly VerifyReport[]): string[] {
  return [...new Set(reports.flatMap(({ host }) => host.map(({ what, detail }) => `${what}: ${detail}`)))];
}

const CLASSES = { held: "done", through: "refused", "not tried": "not", none: "" } as const;
const HEADS = ["What a worker may try", "What came of it", "What got through, or why it was not tried"];
const LONGEST = 500;

/** All reports as one self-contained page without scripts. */
export function verifyHtml(reports: readonly VerifyReport[]): string {
  const [first, ...others] = reports.map((report) => ({ title: titleOf(report), rows: report.threats.map(rowOf) }));
  const about = [verdictOf(reports), ...hostLines(reports), first?.title ?? ""];
  return [
    reportPageStart("What holds on this machine", about, HEADS),
    ...(first?.rows ?? []),
    ...others.flatMap(({ title, rows }) => [
      TABLE_END,
      `<p>${escaped(title, LONGEST)}</p>\n`,
      tableStart(HEADS),
      ...rows,
    ]),
    TABLE_END,
    REPORT_PAGE_END,
  ].join("");
}

function rowOf(threat: ThreatReport): string {
  const { is, said } = threatOutcome(threat);
  const seen = threat.through.map(({ what, saw }) => `${what}: ${saw}`);
  const why = [...seen, ...(threat.notTried === null ? [] : [threat.notTried])].map((text) => escaped(text, LONGEST));
  return `<tr><td>${escaped(threat.meaning, LONGEST)}</td><td class="${CLASSES[is]}">${escaped(said, LONGEST)}</td><td>${why.join("<br>")}</td></tr>\n`;
}
