import { setImmediate as turn } from "node:timers/promises";
import { isCancel, select } from "@clack/prompts";
import type { KeptChange, ListedChangeset } from "../../operations/foreseen-changes.ts";
import { RequestError, type RequestErrorCode } from "../../operations/request-error.ts";
import { type Colors, quotedLines } from "../../operations/wording/question-text.ts";
import { counted, countText } from "../../text/amounts.ts";
import { printableLine, visibleName } from "../../text/visible.ts";
import { type ChangesOffer, fleetChangesAt, openChangesets } from "../host/decisions.ts";
import { type ProjectOptions, projectFolder, projectPlaceOf, UsageError } from "../terminal/arguments.ts";
import {
  columns,
  EXIT,
  paintOf,
  printJson,
  printJsonLine,
  say,
  stoppable,
  type Terminal,
} from "../terminal/terminal.ts";

export interface TargetOptions extends ProjectOptions {
  /** Every changeset of the project, in the order in which they were made. */
  readonly all?: boolean;
  /** Those of the items of this fleet. */
  readonly fleet?: string;
}

/** The changesets that a command is for, one after another. */
export interface Targets {
  readonly count: number;
  /** Null: they are no fleet's. */
  readonly fleet: string | null;
  each(): AsyncIterable<ChangesetTarget> | Iterable<ChangesetTarget>;
}

export interface ChangesetTarget {
  readonly id: string;
  /** The item that left it. */
  readonly item?: { readonly index?: number; readonly key: string };
}

export const NONE = "No changes wait.";

/** `named`: ids, prefixes of them, or `latest`. Exactly one of `named`, `--all` and `--fleet` says which. */
export async function targetsOf(
  verb: string,
  changesets: ChangesOffer,
  named: readonly string[],
  options: TargetOptions,
  terminal: Terminal,
): Promise<Targets> {
  const { all = false, fleet } = options;
  if (Number(named.length > 0) + Number(all) + Number(fleet !== undefined) !== 1)
    throw new UsageError(`name the changesets to ${verb}, or use --fleet ID, or --all for all of the project`);
  if (fleet !== undefined) return await ofFleet(fleet, options, terminal, { decides: true });
  const folder = await projectFolder(options.project, terminal);
  const ids = all
    ? (await changesets.list(folder)).filter(({ ok }) => ok).map(({ id }) => id)
    : await changesets.idsOf(named, folder);
  return { count: ids.length, fleet: null, each: () => ids.map((id) => ({ id })) };
}

/** `how`: see {@link pendingItems}. */
export async function ofFleet(
  asked: string,
  options: ProjectOptions,
  terminal: Terminal,
  how: { readonly decides?: boolean } = {},
): Promise<Targets> {
  const { service } = terminal;
  if (service !== undefined) {
    const { fleet, changesets } = await fleetChangesAt(service, asked);
    const each = () => changesets.map(({ id, item }) => ({ id, item: { key: item ?? "" } }));
    return { fleet, count: changesets.length, each };
  }
  const { pendingItems } = await import("../../operations/fleets.ts");
  const { fleet, count, each } = await pendingItems(
    { ...(await projectPlaceOf(options, terminal)), engineEnv: terminal.env },
    asked,
    how,
  );
  return {
    fleet,
    count,
    async *each() {
      for await (const { index, key, run } of each()) yield { id: run, item: { index, key } };
    },
  };
}

const TELL_MS = 5000;
const UNAVAILABLE: readonly RequestErrorCode[] = ["CHANGESET_BUSY", "CHANGESET_BROKEN", "CHANGESET_CHANGED"];

/**
 * The highest status of all. A changeset that cannot be worked on now stops none of the others; `act` answers with null to stop.
 * An item whose changeset disappeared meanwhile was decided on by another process.
 */
export async function forEach(
  targets: Targets,
  terminal: Terminal,
  act: (target: ChangesetTarget, at: number) => Promise<number | null>,
): Promise<number> {
  let status = 0;
  let at = 0;
  let toldAt = performance.now();
  for await (const target of targets.each()) {
    // Many take long: the person who waits sees progress.
    if (terminal.stderr.isTTY && performance.now() - toldAt > TELL_MS) {
      say(terminal, `corral: ${countText(at)} of ${countText(targets.count)}`);
      toldAt = performance.now();
    }
    // Small records are read at once: without a turn of the event loop, Ctrl-C would wait for the end of all of them.
    await turn();
    try {
      const answer = await act(target, at);
      if (answer === null) break;
      status = Math.max(status, answer);
    } catch (error) {
      if (!(error instanceof RequestError)) throw error;
      const isGone = error.code === "UNKNOWN_CHANGESET" && (targets.fleet !== null || targets.count > 1);
      if (!isGone && !UNAVAILABLE.includes(error.code)) throw error;
      const why = isGone ? `another process has decided on changeset ${target.id}` : error.message;
      say(terminal, `corral: ${printableLine(why)}`);
      status = Math.max(status, 1);
    }
    at += 1;
  }
  return status;
}

/** `2 applied, 1 conflict`. */
export function countsText(changes: readonly { readonly outcome: string }[]): string {
  const counts = new Map<string, number>();
  for (const { outcome } of changes) counts.set(outcome, (counts.get(outcome) ?? 0) + 1);
  return [...counts].map(([outcome, count]) => `${count} ${outcome}`).join(", ") || "nothing";
}

/** One line for each changeset; with its project where those of several are shown. */
export function listText(listed: readonly ListedChangeset[], withProject: boolean): string {
  const rows = listed.map((one) => {
    if (!one.ok) return [one.id, "-", "cannot be read", "-", ...(withProject ? ["-"] : [])];
    const { worker, createdAt, project, counts } = one;
    const text = Object.entries(counts).map(([outcome, count]) => `${count} ${outcome}`);
    const state = [...(one.applying ? ["applying"] : []), ...text].join(", ") || "nothing";
    return [one.id, printableLine(worker, 40), state, createdAt, ...(withProject ? [printableLine(project)] : [])];
  });
  return columns([["ID", "WORKER", "CHANGES", "CREATED", ...(withProject ? ["PROJECT"] : [])], ...rows]);
}

export function changeTable(changes: readonly KeptChange[]): string {
  const rows = changes.map(({ kind, type, path, bytes, outcome, reason, hostExecuted }) => {
    const what = type === "file" ? kind : `${kind} ${type}`;
    return [what, visibleName(path), bytes === null ? "-" : String(bytes), outcome, whyText(reason, hostExecuted)];
  });
  return columns([["CHANGE", "PATH", "BYTES", "STATE", "REASON"], ...rows]);
}

function whyText(reason: string | null, hostExecuted: string | null): string {
  const executed = hostExecuted === null || reason?.includes(hostExecuted) === true ? [] : [hostExecuted];
  return printableLine([...executed, ...(reason === null ? [] : [reason])].join("; "), 400);
}

/** A diff for a terminal: no line of it can be taken for one of Corral's own. */
export function diffText(diff: string, width: number, colors: Colors): string {
  const lines = diff.split("\n").flatMap((line) => quotedLines(line, width, paintOf(line, colors)));
  return lines.join("\n");
}

interface DiscardOptions extends TargetOptions {
  readonly yes?: boolean;
}

/** `corral changes discard`: removes what was written there. What was not named one by one is asked about first. */
export async function discardVerb(
  ids: readonly string[],
  options: DiscardOptions,
  terminal: Terminal,
): Promise<number> {
  await using changesets = await openChangesets(terminal);
  const targets = await targetsOf("discard", changesets, ids, options, terminal);
  const isAsked = ids.length === 0 && targets.count > 0 && !options.yes;
  if (isAsked && !(await isConfirmed(targets, terminal))) {
    say(terminal, "Nothing was discarded.");
    return EXIT.cancelled;
  }
  using stop = stoppable(terminal, (line) => say(terminal, line));
  const isFleet = targets.fleet !== null;
  const discarded: string[] = [];
  let count = 0;
  const status = await forEach(targets, terminal, async ({ id, item }) => {
    if (stop.signal.aborted) return null;
    await changesets.discard(id);
    count += 1;
    if (isFleet && options.json) printJsonLine(terminal, { item, discarded: id });
    else if (options.json) discarded.push(id);
    else if (!isFleet) terminal.stdout.write(`discarded ${id}\n`);
    return 0;
  });
  if (options.json && !isFleet) printJson(terminal, { discarded });
  else if (targets.count === 0 && !options.json) say(terminal, NONE);
  else if (isFleet && !options.json) terminal.stdout.write(`discarded the changes of ${counted(count, "item")}\n`);
  if (!stop.signal.aborted) return status;
  say(terminal, `corral: Stopped: ${count} of ${targets.count} changesets were discarded, the rest waits.`);
  return EXIT.cancelled;
}

async function isConfirmed({ count, fleet }: Targets, { stdin, stderr }: Terminal): Promise<boolean> {
  if (!stdin.isTTY || !stderr.isTTY)
    throw new UsageError(`there is no terminal for the question whether to discard ${count} changesets: use --yes`);
  const what = fleet === null ? `all ${count} changesets of the project` : `the changes of ${counted(count, "item")}`;
  const answer = await select({
    message: `Discard ${what}? They cannot be brought back.`,
    options: [
      { value: false, label: "No" },
      { value: true, label: "Yes, discard them" },
    ],
    initialValue: false,
    input: stdin,
    output: stderr,
  });
  return !isCancel(answer) && answer;
}
