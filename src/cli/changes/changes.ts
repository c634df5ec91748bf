import type {
  Amount,
  ForeseenChangeset,
  ListedChangeset,
  ShownChangeset,
  UnfitChange,
} from "../../operations/foreseen-changes.ts";
import { counted, countText, roughBytesText } from "../../text/amounts.ts";
import { printableLine, visibleName } from "../../text/visible.ts";
import { amountText } from "../consent/person.ts";
import { type ChangesOffer, openChangesets } from "../host/decisions.ts";
import { type ProjectOptions, projectFolder, UsageError } from "../terminal/arguments.ts";
import {
  colorsFor,
  fittedText,
  paddedText,
  printJson,
  printJsonLine,
  printResult,
  say,
  type Terminal,
  withoutControls,
} from "../terminal/terminal.ts";
import {
  type ChangesetTarget,
  changeTable,
  diffText,
  forEach,
  listText,
  NONE,
  ofFleet,
  type Targets,
} from "./targets.ts";

interface OfFleet {
  /** The changesets of the items of this fleet, in place of one that is named. */
  readonly fleet?: string;
}

interface ListOptions extends ProjectOptions, OfFleet {
  readonly allProjects?: boolean;
}

/** If no terminal says how wide it is. */
const DEFAULT_COLUMNS = 80;

/** `corral changes ls`. A changeset that cannot be read is always shown: its project is not known. */
export async function listChangesVerb(options: ListOptions, terminal: Terminal): Promise<number> {
  if (options.fleet !== undefined) {
    if (options.allProjects) throw new UsageError("use either --fleet or --all-projects");
    return await listFleetVerb(options.fleet, options, terminal);
  }
  await using changesets = await openChangesets(terminal);
  const project = options.allProjects ? null : await projectFolder(options.project, terminal);
  const listed = await changesets.list(project);
  if (options.json) printJson(terminal, listed.map(asJson));
  else if (listed.length === 0) say(terminal, NONE);
  else {
    terminal.stdout.write(`${withoutControls(listText(listed, project === null))}\n`);
    for (const one of listed) if (!one.ok) say(terminal, `corral: changeset ${one.id}: ${printableLine(one.reason)}`);
  }
  return 0;
}

/** `corral changes show`. Host paths are in the JSON: its reader is the person whose files they are. */
export async function showChangesVerb(
  asked: string | undefined,
  options: ProjectOptions & OfFleet,
  terminal: Terminal,
): Promise<number> {
  await using changesets = await openChangesets(terminal);
  return await forEachShown(changesets, asked, options, terminal, async (id) => {
    const shown = await changesets.show(id);
    tellAbout(shown, options, terminal);
    return { value: shown, text: changeTable(shown.changes) };
  });
}

/** `corral changes diff`: what is still kept, compared with the files as they are now. */
export async function diffVerb(
  asked: string | undefined,
  options: ProjectOptions & OfFleet,
  terminal: Terminal,
): Promise<number> {
  const { stdout, env } = terminal;
  await using changesets = await openChangesets(terminal);
  return await forEachShown(changesets, asked, options, terminal, async (id) => {
    if (options.json) {
      const { digest, diffs, notShown } = await changesets.diffs(id);
      const shown = diffs.map(({ change: { index, path, kind, type }, verdict, lines }) => {
        return { index, path, kind, type, verdict, lines };
      });
      return { value: { id, digest, diffs: shown, notShown }, text: "" };
    }
    const diff = await changesets.diff(id);
    // The diff itself shows commits.
    tellAbout({ ...(await changesets.show(id)), commits: [] }, options, terminal);
    const text = stdout.isTTY ? diffText(diff, stdout.columns || DEFAULT_COLUMNS, colorsFor(stdout, env)) : diff;
    return { value: null, text };
  });
}

function tellAbout(
  { commits, lookAlike }: Pick<ShownChangeset, "commits" | "lookAlike">,
  { json }: ProjectOptions,
  terminal: Terminal,
): void {
  if (json) return;
  for (const text of commits) say(terminal, `corral: ${text}`);
  for (const text of lookAlike) say(terminal, `corral: careful: ${text}`);
}

/** One changeset; or each of a fleet, under the name of its item, in JSON one a line. */
async function forEachShown(
  changesets: ChangesOffer,
  asked: string | undefined,
  options: ProjectOptions & OfFleet,
  terminal: Terminal,
  shownOf: (id: string) => Promise<{ readonly value: object | null; readonly text: string }>,
): Promise<number> {
  const { fleet, json } = options;
  if ((asked === undefined) === (fleet === undefined)) throw new UsageError("name a changeset, or use --fleet ID");
  if (asked !== undefined) {
    const { value, text } = await shownOf(await chosen(changesets, asked, options, terminal));
    printResult(terminal, json, value, () => text);
    return 0;
  }
  const targets = await ofFleet(fleet ?? "", options, terminal);
  if (targets.count === 0 && !json) say(terminal, NONE);
  return await forEach(targets, terminal, async (target, at) => {
    const { value, text } = await shownOf(target.id);
    if (json) printJsonLine(terminal, { item: target.item, ...value });
    else terminal.stdout.write(`${at === 0 ? "" : "\n"}${headingOf(target, at, targets)}\n${text}\n`);
    return 0;
  });
}

function headingOf({ id, item }: ChangesetTarget, at: number, { count }: Targets): string {
  return `Item ${at + 1} of ${count}, ${printableLine(item?.key ?? "", 200)} (${id})`;
}

async function chosen(
  changesets: ChangesOffer,
  asked: string,
  { project }: ProjectOptions,
  terminal: Terminal,
): Promise<string> {
  const [id = asked] = await changesets.idsOf([asked], await projectFolder(project, terminal));
  return id;
}

function asJson(one: ListedChangeset): object {
  if (!one.ok) return { id: one.id, broken: one.reason };
  const { ok: _, ...changeset } = one;
  return changeset;
}

/** Of each reason why changes cannot be applied, how many are named; and how many reasons. */
const MAX_EXAMPLES = 5;
const MAX_REASONS = 100;

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
