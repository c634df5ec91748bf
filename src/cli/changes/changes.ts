import { realpath } from "node:fs/promises";
import { resolve } from "node:path";
import { changesDiscarded } from "../../audit/records.ts";
import { changeDiffs, changesetDiff } from "../../changes/diff.ts";
import type { ChangesetStore, Loaded, NotKept } from "../../changes/store/changeset-store.ts";
import { printableLine } from "../../operations/wording/printable.ts";
import { colorsFor, printJson, say, type Terminal } from "../terminal/terminal.ts";
import { UsageError } from "../terminal/usage-error.ts";
import { openChangesets, record } from "./changesets.ts";
import { changesText, diffText, listText, shownChanges } from "./text.ts";

interface JsonOption {
  readonly json?: boolean;
}

export interface ListOptions extends JsonOption {
  readonly project: string;
  readonly allProjects?: boolean;
}

export interface DiscardOptions extends JsonOption {
  readonly project: string;
  readonly all?: boolean;
}

/** Where no terminal says how wide it is. */
const DEFAULT_COLUMNS = 80;

/** `corral changes ls`: what waits for somebody. What cannot be read is always shown, as nobody knows whose it is. */
export async function listVerb(options: ListOptions, terminal: Terminal): Promise<number> {
  const store = await openChangesets(terminal);
  const project = options.allProjects ? null : await projectFolder(options.project, terminal);
  const listed = (await store.list()).filter((one) => !one.ok || project === null || one.state.project === project);
  if (options.json) printJson(terminal, listed.map(asJson));
  else if (listed.length === 0) say(terminal, "No changes wait.");
  else {
    terminal.stdout.write(`${listText(listed, project === null)}\n`);
    for (const one of listed) if (!one.ok) say(terminal, `corral: changeset ${one.id}: ${printableLine(one.reason)}`);
  }
  return 0;
}

/** `corral changes show`. Shows host paths in JSON, for it is read by the person whose files they are. */
export async function showVerb(id: string, options: JsonOption, terminal: Terminal): Promise<number> {
  const loaded = await (await openChangesets(terminal)).load(id);
  if (!loaded.ok) return told(id, loaded, terminal);
  const { mounts, changes: _, ...about } = loaded.changeset;
  const changes = shownChanges(loaded);
  if (options.json)
    printJson(terminal, { ...about, mounts: mounts.map(({ path, target }) => ({ path, host: target })), changes });
  else terminal.stdout.write(`${changesText(changes)}\n`);
  return 0;
}

/** `corral changes diff`: what still waits, against what stands there now. */
export async function diffVerb(id: string, options: JsonOption, terminal: Terminal): Promise<number> {
  const { stdout, env } = terminal;
  const loaded = await (await openChangesets(terminal)).load(id);
  if (!loaded.ok) return told(id, loaded, terminal);
  const waiting = waitingOf(loaded);
  if (options.json) {
    const diffs = [];
    for await (const { change, verdict, lines } of changeDiffs(waiting))
      diffs.push({ index: change.index, path: change.path, kind: change.kind, type: change.type, verdict, lines });
    printJson(terminal, { id, diffs, notShown: waiting.changes.length - diffs.length });
    return 0;
  }
  const diff = await changesetDiff(waiting);
  const shown = stdout.isTTY ? diffText(diff, stdout.columns || DEFAULT_COLUMNS, colorsFor(stdout, env)) : diff;
  stdout.write(`${shown}\n`);
  return 0;
}

/** `corral changes discard`: what was written there is gone afterwards. */
export async function discardVerb(
  ids: readonly string[],
  options: DiscardOptions,
  terminal: Terminal,
): Promise<number> {
  if (ids.length > 0 === (options.all === true))
    throw new UsageError("name the changesets to discard, or --all for all of the project");
  const store = await openChangesets(terminal);
  const wanted = options.all ? await idsOfProject(store, options.project, terminal) : ids;
  const discarded: string[] = [];
  let status = 0;
  for (const id of wanted) {
    const loaded = await store.load(id);
    const done = await store.discard(id);
    if (!done.ok) {
      status = Math.max(status, told(id, done, terminal));
      continue;
    }
    discarded.push(id);
    // What was applied before stays so, and is not discarded.
    if (loaded.ok)
      await record(loaded.changeset, changesDiscarded(loaded.changeset, waitingOf(loaded).changes), terminal);
    if (!options.json) terminal.stdout.write(`discarded ${id}\n`);
  }
  if (options.json) printJson(terminal, { discarded });
  else if (wanted.length === 0) say(terminal, "No changes wait.");
  return status;
}

/** The changesets of one project, the oldest first. */
export async function idsOfProject(store: ChangesetStore, dir: string, terminal: Terminal): Promise<string[]> {
  const project = await projectFolder(dir, terminal);
  return (await store.list()).filter((one) => one.ok && one.state.project === project).map(({ id }) => id);
}

/** The changeset with the changes that can still be applied. */
export function waitingOf({ changeset, waiting }: Loaded & { readonly ok: true }) {
  return { ...changeset, changes: changeset.changes.filter(({ index }) => waiting.has(index)) };
}

/** Says why nothing was done. An id that is none is a mistake of whoever typed it. */
export function told(id: string, { code, reason }: NotKept, terminal: Terminal): number {
  if (code === "missing")
    throw new UsageError(
      `${printableLine(id, 40)}: ${reason}; corral changes ls --all-projects shows those that there are`,
    );
  say(terminal, `corral: ${printableLine(reason)}`);
  return 1;
}

/** A folder that is not there any more may have changesets yet. */
async function projectFolder(dir: string, { cwd }: Terminal): Promise<string> {
  const path = resolve(cwd, dir);
  return await realpath(path).catch(() => path);
}

function asJson(one: Awaited<ReturnType<Awaited<ReturnType<typeof openChangesets>>["list"]>>[number]): object {
  if (!one.ok) return { id: one.id, broken: one.reason };
  const { run, worker, project, createdAt, changes } = one.state;
  const counts: Record<string, number> = {};
  for (const { outcome } of changes) counts[outcome] = (counts[outcome] ?? 0) + 1;
  return { id: one.id, run, worker, project, createdAt, applying: one.applying, counts };
}
