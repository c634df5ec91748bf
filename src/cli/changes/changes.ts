import { type Approver, noTerminal } from "../../approval/approver.ts";
import type { Project } from "../../declarations/project.ts";
import { visibleName } from "../../files/diff/visible.ts";
import { type AppliedChangeset, Changesets, type ListedChangeset } from "../../operations/changesets.ts";
import { RequestError, type RequestErrorCode } from "../../operations/request-error.ts";
import { printableLine } from "../../operations/wording/printable.ts";
import type { ApprovalMode } from "../../sandbox/approval.ts";
import { parseVirtualPath, type VirtualPath } from "../../sandbox/virtual-path.ts";
import { stateDirFrom } from "../../state/state-dir.ts";
import { personAt } from "../consent/person.ts";
import { type ProjectOptions, projectFolder, UsageError } from "../terminal/arguments.ts";
import { EXIT } from "../terminal/exit-status.ts";
import { stoppable } from "../terminal/stop.ts";
import { colorsFor, printJson, printResult, say, type Terminal } from "../terminal/terminal.ts";
import { changesText, countsText, diffText, listText } from "./changes-text.ts";

interface ListOptions extends ProjectOptions {
  readonly allProjects?: boolean;
}

interface DiscardOptions extends ProjectOptions {
  /** Every changeset of the project, in the order in which they were made. */
  readonly all?: boolean;
}

interface ApplyVerbOptions extends DiscardOptions {
  readonly only: readonly string[];
  readonly approve?: ApprovalMode;
  readonly yes?: boolean;
}

/** If no terminal says how wide it is. */
const DEFAULT_COLUMNS = 80;

/** `corral changes ls`. A changeset that cannot be read is always shown: its project is not known. */
export async function listVerb(options: ListOptions, terminal: Terminal): Promise<number> {
  const changesets = await open(terminal);
  const project = options.allProjects ? null : await projectFolder(options.project, terminal);
  const listed = await changesets.list(project);
  if (options.json) printJson(terminal, listed.map(asJson));
  else if (listed.length === 0) say(terminal, NONE);
  else {
    terminal.stdout.write(`${listText(listed, project === null)}\n`);
    for (const one of listed) if (!one.ok) say(terminal, `corral: changeset ${one.id}: ${printableLine(one.reason)}`);
  }
  return 0;
}

/** `corral changes show`. Host paths are in the JSON: its reader is the person whose files they are. */
export async function showVerb(asked: string, options: ProjectOptions, terminal: Terminal): Promise<number> {
  const changesets = await open(terminal);
  const shown = await changesets.show(await chosen(changesets, asked, options, terminal));
  printResult(terminal, options.json, shown, () => changesText(shown.changes));
  return 0;
}

/** `corral changes diff`: what is still kept, compared with the files as they are now. */
export async function diffVerb(asked: string, options: ProjectOptions, terminal: Terminal): Promise<number> {
  const { stdout, env } = terminal;
  const changesets = await open(terminal);
  const id = await chosen(changesets, asked, options, terminal);
  if (options.json) {
    const { diffs, notShown } = await changesets.diffs(id);
    const shown = diffs.map(({ change: { index, path, kind, type }, verdict, lines }) => {
      return { index, path, kind, type, verdict, lines };
    });
    printJson(terminal, { id, diffs: shown, notShown });
    return 0;
  }
  const diff = await changesets.diff(id);
  const shown = stdout.isTTY ? diffText(diff, stdout.columns || DEFAULT_COLUMNS, colorsFor(stdout, env)) : diff;
  stdout.write(`${shown}\n`);
  return 0;
}

/** `corral changes apply`: asks as a run of the project would, and applies what is approved. Exit status 1 if anything was not applied. */
export async function applyVerb(
  ids: readonly string[],
  options: ApplyVerbOptions,
  terminal: Terminal,
): Promise<number> {
  refuseUnnamed("apply", ids, options);
  const only = options.only.map(pathFrom);
  if (only.length > 0 && ids.length !== 1) throw new UsageError("--only works with one changeset");
  if (options.yes && options.approve !== undefined) throw new UsageError("use either --yes or --approve");
  const changesets = await open(terminal);
  const wanted = await idsOfProject(changesets, ids, options, terminal);
  using stop = stoppable(terminal, (line) => say(terminal, line));
  let person: Approver | null = null;
  const asked = (project: Project) => {
    person ??= personAt(project, { terminal, stop });
    return {
      ...(options.approve === undefined ? {} : { approvalMode: options.approve }),
      person: person ?? noTerminal,
    };
  };
  const approval = options.yes ? "agreed" : asked;
  const applied: AppliedChangeset[] = [];
  const status = await forEach(wanted, terminal, async (id) => {
    const done = await changesets.apply(id, { only, approval, signal: stop.signal });
    applied.push(done);
    tellApplied(done, options.json === true, terminal);
    return done.changes.every(({ outcome }) => outcome === "applied") ? 0 : 1;
  }).catch((error: unknown) => {
    if (stop.signal.aborted) return EXIT.cancelled;
    throw error;
  });
  if (options.json) for (const answer of ids.length === 1 ? applied : [applied]) printJson(terminal, answer);
  else if (wanted.length === 0) say(terminal, NONE);
  if (!stop.signal.aborted) return status;
  say(terminal, stoppedText(applied.length, wanted.length));
  return EXIT.cancelled;
}

function stoppedText(decided: number, all: number): string {
  const others = all - decided;
  if (others === 0) return "corral: Stopped after the last changeset.";
  const what = others === 1 ? "changeset was" : "changesets were";
  return `corral: Stopped: ${others} of ${all} ${what} not applied. See \`corral changes ls\`.`;
}

function tellApplied({ changes, left }: AppliedChangeset, isJson: boolean, terminal: Terminal): void {
  const withheld = new Map<string, number>();
  for (const { path, outcome, reason } of changes) {
    const why = printableLine(reason ?? "", 500);
    // One answer may be on thousands of changes.
    if (outcome === "denied" || outcome === "held") withheld.set(why, (withheld.get(why) ?? 0) + 1);
    else if (outcome !== "applied") say(terminal, `${outcome}: ${visibleName(path)}: ${why}`);
  }
  for (const [why, count] of withheld) say(terminal, `corral: ${count} not applied: ${why}`);
  if (isJson) return;
  if (changes.every(({ outcome }) => outcome === "denied" || outcome === "held")) say(terminal, "Nothing was applied.");
  else terminal.stdout.write(`${countsText(changes)}${left > 0 ? `; ${left} wait` : ""}\n`);
}

/** `corral changes discard`: removes what was written there. */
export async function discardVerb(
  ids: readonly string[],
  options: DiscardOptions,
  terminal: Terminal,
): Promise<number> {
  refuseUnnamed("discard", ids, options);
  const changesets = await open(terminal);
  const wanted = await idsOfProject(changesets, ids, options, terminal);
  const discarded: string[] = [];
  const status = await forEach(wanted, terminal, async (id) => {
    await changesets.discard(id);
    discarded.push(id);
    if (!options.json) terminal.stdout.write(`discarded ${id}\n`);
    return 0;
  });
  if (options.json) printJson(terminal, { discarded });
  else if (wanted.length === 0) say(terminal, NONE);
  return status;
}

function refuseUnnamed(verb: string, ids: readonly string[], { all = false }: DiscardOptions): void {
  if (ids.length > 0 === all)
    throw new UsageError(`name the changesets to ${verb}, or use --all for all of the project`);
}

const NONE = "No changes wait.";
const UNAVAILABLE: readonly RequestErrorCode[] = ["CHANGESET_BUSY", "CHANGESET_BROKEN"];

/** The highest status of all. A changeset that cannot be worked on now stops none of the others. */
async function forEach(
  ids: readonly string[],
  terminal: Terminal,
  act: (id: string) => Promise<number>,
): Promise<number> {
  let status = 0;
  for (const id of ids) {
    try {
      status = Math.max(status, await act(id));
    } catch (error) {
      if (!(error instanceof RequestError && UNAVAILABLE.includes(error.code))) throw error;
      say(terminal, `corral: ${printableLine(error.message)}`);
      status = Math.max(status, 1);
    }
  }
  return status;
}

async function open(terminal: Terminal): Promise<Changesets> {
  return await Changesets.open(stateDirFrom(terminal.env), terminal.env, (text) => say(terminal, `corral: ${text}`));
}

/** With `--all` every readable one of the project, else those that were named. */
async function idsOfProject(
  changesets: Changesets,
  named: readonly string[],
  { project, all }: DiscardOptions,
  terminal: Terminal,
): Promise<readonly string[]> {
  const folder = await projectFolder(project, terminal);
  if (!all) return await changesets.idsOf(named, folder);
  return (await changesets.list(folder)).filter(({ ok }) => ok).map(({ id }) => id);
}

async function chosen(
  changesets: Changesets,
  asked: string,
  { project }: ProjectOptions,
  terminal: Terminal,
): Promise<string> {
  const [id = asked] = await changesets.idsOf([asked], await projectFolder(project, terminal));
  return id;
}

function pathFrom(raw: string): VirtualPath {
  const parsed = parseVirtualPath(raw);
  if (!parsed.ok) throw new UsageError(`--only ${printableLine(raw, 80)}: ${parsed.reason}`);
  return parsed.path;
}

function asJson(one: ListedChangeset): object {
  if (!one.ok) return { id: one.id, broken: one.reason };
  const { ok: _, ...changeset } = one;
  return changeset;
}
