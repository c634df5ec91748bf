import { type ApplicationOptions, applyChangeset, finishInterrupted } from "../apply/application.ts";
import type { ApplyLimits, Settled } from "../apply/fitness.ts";
import { type Changeset, only } from "../model/changeset.ts";
import { agreedIn, isThere, type KeptChangeset, type KeptFolder, outcomesOf, withOutcomes } from "./kept-folder.ts";

/**
 * Records what was applied. It is called before the application is forgotten: if the process dies first, the one that finishes it records it.
 * `resumed`: it may be recorded already.
 */
export type RecordApplied = (
  changeset: Changeset,
  settled: readonly Settled[],
  how: { readonly resumed: boolean },
) => Promise<void>;

export interface KeptApplication extends ApplicationOptions {
  readonly limits?: ApplyLimits | undefined;
  readonly record?: RecordApplied | undefined;
}

/** Applies those of `which` that still wait. The outcomes are in the folder's state. */
export async function applyKept(
  folder: KeptFolder,
  { changeset, state, waiting }: KeptChangeset,
  which: ReadonlySet<number>,
  { record, ...options }: KeptApplication,
): Promise<Settled[]> {
  const agreed = changeset.changes.map(({ index }) => index).filter((index) => which.has(index) && waiting.has(index));
  const recorded = async (settled: readonly Settled[]) => await record?.(changeset, settled, { resumed: false });
  return await applyChangeset(changeset, agreed, { ...options, ...logIn(folder, state, recorded) });
}

/** Applies what was agreed to, after `before`. Null if nothing was. */
export async function applyAgreed(
  folder: KeptFolder,
  before: (agreed: Changeset) => Promise<void>,
  record: RecordApplied,
): Promise<readonly Settled[] | null> {
  const kept = await folder.read();
  const agreed = agreedIn(kept.state);
  if (agreed.size === 0) return null;
  await before(only(kept.changeset, agreed));
  return await applyKept(folder, kept, agreed, { record });
}

/** Continues an application whose process ended. Null if none was begun. */
export async function finishApplication(
  folder: KeptFolder,
  { signal, onStep, record }: KeptApplication,
): Promise<readonly Settled[] | null> {
  if (!isThere(folder.applyLog)) return null;
  const { changeset, state } = await folder.read();
  const recorded = async (settled: readonly Settled[]) => await record?.(changeset, settled, { resumed: true });
  return await finishInterrupted(changeset, { signal, onStep, ...logIn(folder, state, recorded) });
}

function logIn(
  folder: KeptFolder,
  state: KeptChangeset["state"],
  recorded: (settled: readonly Settled[]) => Promise<void>,
) {
  const onSettled = async (settled: readonly Settled[]): Promise<void> => {
    await folder.writeState(withOutcomes(state, outcomesOf(settled)));
    await recorded(settled);
  };
  return { logDir: folder.dir, onSettled };
}
