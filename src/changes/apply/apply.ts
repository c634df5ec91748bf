import type { Changeset } from "../model/changeset.ts";
import { Application, type ApplicationOptions } from "./application.ts";
import { ApplyLog, type Intent } from "./apply-log.ts";
import { type ApplyLimits, DEFAULT_LIMITS } from "./fitness.ts";
import type { Settled } from "./verdict.ts";

export interface ApplyOptions extends ApplicationOptions {
  /** A directory of Corral's own, for this changeset alone; created if it is missing. */
  readonly logDir: string;
  readonly limits?: ApplyLimits | undefined;
  /** Stores the verdicts before the log is removed. */
  readonly onSettled?: ((settled: readonly Settled[]) => Promise<void>) | undefined;
}

/**
 * Applies the approved changes of a changeset (`which`, by index), in order, and returns a verdict for each. A change is
 * applied whole or not at all, and only if its target is as the run found it. No link is followed.
 *
 * If the process is killed, {@link finishInterrupted} continues from the log. Rejects if the log cannot be written.
 */
export async function applyChangeset(
  changeset: Changeset,
  which: Iterable<number>,
  { limits = DEFAULT_LIMITS, ...options }: ApplyOptions,
): Promise<Settled[]> {
  const intent = { id: changeset.id, which: [...which], limits };
  using log = ApplyLog.open(options.logDir) ?? begun(intent, options);
  if (!isSame(intent, log.intent)) throw new Error(`changeset ${changeset.id} is already being applied`);
  return await applied(changeset, log, options);
}

/** Continues an interrupted application with the changes that were approved then. Null if there is none. */
export async function finishInterrupted(
  changeset: Changeset,
  options: Omit<ApplyOptions, "limits">,
): Promise<Settled[] | null> {
  using log = ApplyLog.open(options.logDir);
  if (log === null) return null;
  if (log.intent.id !== changeset.id) throw new Error(`the log does not belong to changeset ${changeset.id}`);
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
