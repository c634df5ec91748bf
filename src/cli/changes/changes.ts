import type { ListedChangeset, ShownChangeset } from "../../operations/foreseen-changes.ts";
import { printableLine } from "../../text/visible.ts";
import { type ChangesOffer, openChangesets } from "../host/changesets.ts";
import { type ProjectOptions, projectFolder, UsageError } from "../terminal/arguments.ts";
import {
  colorsFor,
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
    return await (await import("./fleet-changes.ts")).listFleetVerb(options.fleet, options, terminal);
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
