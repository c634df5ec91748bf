import type { Changeset } from "../model/changeset.ts";
import { Application, type ApplicationOptions } from "./application.ts";
import { ApplyLog, type Intent } from "./apply-log.ts";
import { type ApplyLimits, DEFAULT_LIMITS } from "./fitness.ts";
import type { Settled } from "./verdict.ts";

export interface ApplyOptions extends ApplicationOptions {
  /** A directory of Corral's own, for this changeset alone; made where it is missing. */
  readonly logDir: string;
  readonly limits?: ApplyLimits | undefined;
  /** Writes the verdicts down, before the log is forgotten. */
  readonly onSettled?: ((settled: readonly Settled[]) => Promise<void>) | undefined;
}

/**
 * Applies the changes of a changeset that were agreed to (`which`, by index), in its order, and answers with one verdict
 * on each of them. Each is applied whole or not at all, and only to what the run began with: nothing that somebody else
 * changed since is overwritten, no link is followed, nothing outside of the directories is touched.
 *
 * A process that is killed on its way leaves the log behind, and {@link finishInterrupted} goes on from there.
 * Rejects where the log cannot be kept.
 */
export async function applyChangeset(
  changeset: Changeset,
  which: Iterable<number>,
  { limits = DEFAULT_LIMITS, ...options }: ApplyOptions,
): Promise<Settled[]> {
  const intent = { id: changeset.id, which: [...which], limits };
  using log = ApplyLog.open(options.logDir) ?? begun(intent, options);
  if (!isSame(intent, log.intent)) throw new Error(`changeset ${changeset.id} is being applied already`);
  return await applied(changeset, log, options);
}

/** Goes on where an application ended that was killed, with what was agreed to then. Null where there is none. */
export async function finishInterrupted(
  changeset: Changeset,
  options: Omit<ApplyOptions, "limits">,
): Promise<Settled[] | null> {
  using log = ApplyLog.open(options.logDir);
  if (log === null) return null;
  if (log.intent.id !== changeset.id) throw new Error(`the log is not one of changeset ${changeset.id}`);
  return await applied(changeset, log, options);
}

async function applied(
  changeset: Changeset,
  log: ApplyLog,
  { logDir, onSettled, ...options }: Omit<ApplyOptions, "limits">,
): Promise<Settled[]> {
  using application = new Application(changeset, log, options);
  const settled = await application.run();
  await onSettled?.(settled);
  options.onStep?.("forget");
  ApplyLog.forget(logDir);
  return settled;
}

function begun(intent: Intent, { logDir, onStep }: ApplyOptions): ApplyLog {
  onStep?.("begin");
  return ApplyLog.begin(logDir, intent);
}

function isSame(a: Intent, b: Intent): boolean {
  return a.id === b.id && JSON.stringify([a.which, a.limits]) === JSON.stringify([b.which, b.limits]);
}
