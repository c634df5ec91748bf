import type { Changeset } from "../model/changeset.ts";
import { Application, type ApplicationOptions } from "./application.ts";
import { type ApplyLimits, DEFAULT_LIMITS } from "./fitness.ts";
import { type Intent, Journal } from "./journal.ts";
import type { Settled } from "./verdict.ts";

export interface ApplyOptions extends ApplicationOptions {
  /** A directory of Corral's own, for this changeset alone; made where it is missing. */
  readonly journalDir: string;
  readonly limits?: ApplyLimits | undefined;
  /** Writes the verdicts down, before the journal is forgotten. */
  readonly onSettled?: ((settled: readonly Settled[]) => Promise<void>) | undefined;
}

/**
 * Applies the changes of a changeset that were agreed to (`which`, by index), in its order, and answers with one verdict
 * on each of them. Each is applied whole or not at all, and only to what the run began with: nothing that somebody else
 * changed since is overwritten, no link is followed, nothing outside of the directories is touched.
 *
 * A process that is killed on its way leaves the journal behind, and {@link finishInterrupted} goes on from there.
 * Rejects where the journal cannot be kept.
 */
export async function applyChangeset(
  changeset: Changeset,
  which: Iterable<number>,
  { limits = DEFAULT_LIMITS, ...options }: ApplyOptions,
): Promise<Settled[]> {
  const intent = { id: changeset.id, which: [...which], limits };
  using journal = Journal.open(options.journalDir) ?? begun(intent, options);
  if (!isSame(intent, journal.intent)) throw new Error(`changeset ${changeset.id} is being applied already`);
  return await applied(changeset, journal, options);
}

/** Goes on where an application ended that was killed, with what was agreed to then. Null where there is none. */
export async function finishInterrupted(
  changeset: Changeset,
  options: Omit<ApplyOptions, "limits">,
): Promise<Settled[] | null> {
  using journal = Journal.open(options.journalDir);
  if (journal === null) return null;
  if (journal.intent.id !== changeset.id) throw new Error(`the journal is not one of changeset ${changeset.id}`);
  return await applied(changeset, journal, options);
}

async function applied(
  changeset: Changeset,
  journal: Journal,
  { journalDir, onSettled, ...options }: Omit<ApplyOptions, "limits">,
): Promise<Settled[]> {
  using application = new Application(changeset, journal, options);
  const settled = await application.run();
  await onSettled?.(settled);
  options.onStep?.("forget");
  Journal.forget(journalDir);
  return settled;
}

function begun(intent: Intent, { journalDir, onStep }: ApplyOptions): Journal {
  onStep?.("begin");
  return Journal.begin(journalDir, intent);
}

function isSame(a: Intent, b: Intent): boolean {
  return a.id === b.id && JSON.stringify([a.which, a.limits]) === JSON.stringify([b.which, b.limits]);
}
