import type { Amount, ForeseenChangeset, UnfitChange } from "../../operations/foreseen-changes.ts";
import { counted, countText, roughBytesText } from "../../text/amounts.ts";
import { printableLine, visibleName } from "../../text/visible.ts";
import { amountText } from "../consent/prompt.ts";
import { type ChangesOffer, openChangesets } from "../host/changesets.ts";
import type { ProjectOptions } from "../terminal/arguments.ts";
import { fittedText, paddedText, printJsonLine, say, type Terminal } from "../terminal/terminal.ts";
import { type ChangesetTarget, forEach, NONE, ofFleet, type Targets } from "./targets.ts";

/** Of each reason why changes cannot be applied, how many are named; and how many reasons. */
const MAX_EXAMPLES = 5;
const MAX_REASONS = 100;
const DEFAULT_COLUMNS = 80;

interface Reason {
  count: number;
  readonly examples: string[];
}

/** `corral changes ls --fleet`: what cannot be applied and why, then each item, then all of it together. */
export async function listFleetVerb(fleet: string, options: ProjectOptions, terminal: Terminal): Promise<number> {
  await using changesets = await openChangesets(terminal);
  const targets = await ofFleet(fleet, options, terminal);
  if (options.json) {
    return await forEach(targets, terminal, async ({ id, item }) => {
      const { parts, ...seen } = await changesets.foresee(id);
      const shown = parts.map(({ lines: _, indexes: __, ...part }) => part);
      printJsonLine(terminal, { item, ...seen, parts: shown });
      return 0;
    });
  }
  if (targets.count === 0) {
    say(terminal, NONE);
    return 0;
  }
  return await listed(changesets, targets, terminal);
}

async function listed(changesets: ChangesOffer, targets: Targets, terminal: Terminal): Promise<number> {
  const { stdout } = terminal;
  const width = Math.max(12, (stdout.columns || DEFAULT_COLUMNS) - OTHER_COLUMNS);
  const reasons = new Map<string, Reason>();
  // One short line for each item, so that what cannot be applied comes first although it is known last.
  const rows: string[] = [];
  const total = { files: 0, added: 0, removed: 0, bytes: 0 } satisfies Amount;
  const status = await forEach(targets, terminal, async (target) => {
    const seen = await changesets.foresee(target.id);
    for (const one of seen.unfit) note(reasons, one, target);
    for (const amount of ["files", "added", "removed", "bytes"] as const) total[amount] += seen.total[amount];
    rows.push(rowOf(seen, target, width));
    return 0;
  });
  if (reasons.size > 0) stdout.write(`${unfitLines(reasons).join("\n")}\n\n`);
  stdout.write(`${paddedText("ITEM", width)}  FILES      LINES     BYTES  CHANGESET\n`);
  for (const row of rows) stdout.write(`${row}\n`);
  stdout.write(`\n${counted(rows.length, "item")}: ${amountText(total)}\n`);
  say(terminal, `corral: \`corral changes apply --fleet ${targets.fleet}\` shows each file and asks`);
  return status;
}

/** All columns but the first, with the blanks between them. */
const OTHER_COLUMNS = 2 + 5 + 2 + 9 + 2 + 8 + 2 + 12;

function rowOf({ id, total, unfit }: ForeseenChangeset, { item }: ChangesetTarget, width: number): string {
  const lines = `+${total.added} -${total.removed}`;
  const name = paddedText(printableLine(item?.key ?? "", 200), width);
  const bytes = roughBytesText(total.bytes).replace("bytes", "B");
  const mark = unfit.length > 0 ? " !" : "";
  return `${name}  ${countText(total.files).padStart(5)}  ${fittedText(lines, 9).padStart(9)}  ${bytes.padStart(8)}  ${id}${mark}`;
}

function note(reasons: Map<string, Reason>, { outcome, path, reason }: UnfitChange, { item }: ChangesetTarget): void {
  const why = `${outcome}: ${printableLine(reason, 300)}`;
  const key = reasons.has(why) || reasons.size < MAX_REASONS ? why : "for other reasons";
  const known = reasons.get(key) ?? { count: 0, examples: [] };
  reasons.set(key, known);
  known.count += 1;
  if (known.examples.length < MAX_EXAMPLES)
    known.examples.push(`${printableLine(item?.key ?? "", 60)}: ${printableLine(visibleName(path), 200)}`);
}

function unfitLines(reasons: ReadonlyMap<string, Reason>): string[] {
  const most = [...reasons].sort(([, a], [, b]) => b.count - a.count);
  return most.flatMap(([why, { count, examples }]) => [
    `${countText(count)} ${why}`,
    ...examples.map((example) => `  ${example}`),
    ...(count > examples.length ? [`  and ${countText(count - examples.length)} more`] : []),
  ]);
}
