import { changesApplied, changesApplying } from "../../audit/records.ts";
import { visibleName } from "../../changes/diff/visible.ts";
import { changesetDiff } from "../../changes/diff.ts";
import type { Change, Changeset } from "../../changes/model/changeset.ts";
import type { ChangesetStore } from "../../changes/store/changeset-store.ts";
import { printableLine } from "../../operations/wording/printable.ts";
import { parseVirtualPath, type VirtualPath } from "../../sandbox/virtual-path.ts";
import { EXIT } from "../terminal/exit-status.ts";
import { stoppable } from "../terminal/stop.ts";
import { colorsFor, printJson, say, type Terminal } from "../terminal/terminal.ts";
import { UsageError } from "../terminal/usage-error.ts";
import { idsOfProject, told, waitingOf } from "./changes.ts";
import { openChangesets, record } from "./changesets.ts";
import { selectChanges } from "./select.ts";
import { countsText, diffText } from "./text.ts";

export interface ApplyVerbOptions {
  readonly project: string;
  /** Every changeset of the project, in the order in which they were made. */
  readonly all?: boolean;
  readonly only: readonly string[];
  readonly yes?: boolean;
  readonly json?: boolean;
}

const DEFAULT_COLUMNS = 80;

/** What became of one changeset. */
interface AppliedOne {
  readonly id: string;
  readonly changes: readonly unknown[];
  /** How many changes wait on. */
  readonly left: number;
}

/** `corral changes apply`: shows what would be changed, asks, and applies it. What conflicts is left, and waits on. */
export async function applyVerb(
  ids: readonly string[],
  options: ApplyVerbOptions,
  terminal: Terminal,
): Promise<number> {
  if (ids.length > 0 === (options.all === true))
    throw new UsageError("name the changesets to apply, or --all for all of the project");
  const only = options.only.map(pathFrom);
  if (only.length > 0 && ids.length !== 1) throw new UsageError("--only is for one changeset");
  if (!options.yes && !(terminal.stderr.isTTY && terminal.stdin.isTTY))
    throw new UsageError(
      "nobody can be asked here; corral changes diff shows what would be applied, --yes agrees to it",
    );
  const store = await openChangesets(terminal);
  const wanted = options.all ? await idsOfProject(store, options.project, terminal) : ids;
  using stop = stoppable(terminal, (line) => say(terminal, line));
  const answers: AppliedOne[] = [];
  let status = 0;
  for (const id of wanted) {
    const done = await applyOne(id, only, options.yes === true, store, stop.signal, terminal);
    status = Math.max(status, done.status);
    if (done.answer !== null) answers.push(done.answer);
    if (!options.json && done.text !== null) terminal.stdout.write(`${done.text}\n`);
    if (stop.signal.aborted) break;
  }
  const isOne = ids.length === 1;
  if (options.json) for (const answer of isOne ? answers : [answers]) printJson(terminal, answer);
  else if (wanted.length === 0) say(terminal, "No changes wait.");
  return stop.signal.aborted ? EXIT.cancelled : status;
}

async function applyOne(
  id: string,
  only: readonly VirtualPath[],
  isAgreedAlready: boolean,
  store: ChangesetStore,
  signal: AbortSignal,
  terminal: Terminal,
): Promise<{ readonly status: number; readonly answer: AppliedOne | null; readonly text: string | null }> {
  const unapplied = (status: number) => ({ status, answer: null, text: null });
  const loaded = await store.load(id);
  if (!loaded.ok) return unapplied(told(id, loaded, terminal));
  const waiting = waitingOf(loaded);
  const { changes, unmatched } = selectChanges(waiting.changes, only);
  if (unmatched.length > 0)
    throw new UsageError(
      `no change waits at ${unmatched.map(visibleName).join(", ")}; corral changes show ${id} shows all`,
    );
  if (!isAgreedAlready && !(await isAgreed({ ...waiting, changes }, signal, terminal))) {
    say(terminal, "Nothing was applied.");
    return unapplied(1);
  }
  await record(waiting, changesApplying(waiting, changes), terminal);
  const applied = await store.applyKept(id, new Set(changes.map(({ index }) => index)), { signal });
  if (!applied.ok) return unapplied(told(id, applied, terminal));
  const { left } = applied;
  const settled = applied.settled.map(({ change, ...verdict }) => ({ ...named(change), ...verdict }));
  await record(waiting, changesApplied(waiting, settled), terminal);
  for (const { path, outcome, reason } of settled)
    if (outcome !== "applied") say(terminal, `${outcome}: ${visibleName(path)}: ${printableLine(reason ?? "")}`);
  return {
    status: settled.every(({ outcome }) => outcome === "applied") ? 0 : 1,
    answer: { id, changes: settled, left },
    text: `${countsText(settled)}${left > 0 ? `; ${left} wait` : ""}`,
  };
}

function pathFrom(raw: string): VirtualPath {
  const parsed = parseVirtualPath(raw);
  if (!parsed.ok) throw new UsageError(`--only ${printableLine(raw, 80)}: ${parsed.reason}`);
  return parsed.path;
}

async function isAgreed(changeset: Changeset, signal: AbortSignal, terminal: Terminal): Promise<boolean> {
  const { stdin, stderr, env } = terminal;
  const { confirm } = await import("@clack/prompts");
  const diff = diffText(await changesetDiff(changeset), stderr.columns || DEFAULT_COLUMNS, colorsFor(stderr, env));
  stderr.write(`${diff}\n`);
  const count = changeset.changes.length;
  const message = `Apply ${count === 1 ? "this change" : `these ${count} changes`} of worker ${printableLine(changeset.worker, 80)}?`;
  const answer = await confirm({ message, initialValue: false, input: stdin, output: stderr, signal });
  // While a prompt is open the terminal is raw, and Ctrl-C is a key like any other: it is no yes.
  return answer === true;
}

function named({ index, path, kind, type }: Change) {
  return { index, path, kind, type };
}
