import { changesApplied, changesApplying } from "../audit/records.ts";
import type { Change, Changeset } from "../changes/changeset.ts";
import { visibleName } from "../changes/diff/visible.ts";
import { changesetDiff } from "../changes/diff.ts";
import { parseVirtualPath, type VirtualPath } from "../sandbox/virtual-path.ts";
import { told, waitingOf } from "./changes.ts";
import { selectChanges } from "./changes-select.ts";
import { countsText, diffText } from "./changes-text.ts";
import { openChangesets, record } from "./changesets.ts";
import { EXIT } from "./exit-status.ts";
import { printableLine } from "./printable.ts";
import { stoppable } from "./stop.ts";
import { colorsFor, printJson, say, type Terminal } from "./terminal.ts";
import { UsageError } from "./usage-error.ts";

export interface ApplyVerbOptions {
  readonly only: readonly string[];
  readonly yes?: boolean;
  readonly json?: boolean;
}

const DEFAULT_COLUMNS = 80;

/** `corral changes apply`: shows what would be changed, asks, and applies it. What conflicts is left, and waits on. */
export async function applyVerb(id: string, options: ApplyVerbOptions, terminal: Terminal): Promise<number> {
  const only = options.only.map(pathFrom);
  if (!options.yes && !(terminal.stderr.isTTY && terminal.stdin.isTTY))
    throw new UsageError(
      "nobody can be asked here; corral changes diff shows what would be applied, --yes agrees to it",
    );
  const store = await openChangesets(terminal);
  const loaded = await store.load(id);
  if (!loaded.ok) return told(id, loaded, terminal);
  const waiting = waitingOf(loaded);
  const { changes, unmatched } = selectChanges(waiting.changes, only);
  if (unmatched.length > 0)
    throw new UsageError(
      `no change waits at ${unmatched.map(visibleName).join(", ")}; corral changes show ${id} shows all`,
    );
  using stop = stoppable(terminal, (line) => say(terminal, line));
  if (!options.yes && !(await isAgreed({ ...waiting, changes }, stop.signal, terminal))) {
    say(terminal, "Nothing was applied.");
    return stop.signal.aborted ? EXIT.cancelled : 1;
  }
  await record(waiting, changesApplying(waiting, changes), terminal);
  const applied = await store.applyKept(id, new Set(changes.map(({ index }) => index)), { signal: stop.signal });
  if (!applied.ok) return told(id, applied, terminal);
  const settled = applied.settled.map(({ change, ...verdict }) => ({ ...named(change), ...verdict }));
  await record(waiting, changesApplied(waiting, settled), terminal);
  if (options.json) printJson(terminal, { id, changes: settled, left: applied.left });
  else {
    for (const { path, outcome, reason } of settled)
      if (outcome !== "applied") say(terminal, `${outcome}: ${visibleName(path)}: ${printableLine(reason ?? "")}`);
    terminal.stdout.write(`${countsText(settled)}${applied.left > 0 ? `; ${applied.left} wait` : ""}\n`);
  }
  if (stop.signal.aborted) return EXIT.cancelled;
  return settled.every(({ outcome }) => outcome === "applied") ? 0 : 1;
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
