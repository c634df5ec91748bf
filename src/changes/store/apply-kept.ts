import type { ApplicationOptions } from "../apply/application.ts";
import { applyChangeset, finishInterrupted } from "../apply/apply.ts";
import type { ApplyLimits } from "../apply/fitness.ts";
import type { Settled } from "../apply/verdict.ts";
import { type Changeset, only } from "../model/changeset.ts";
import { isThere } from "./existing.ts";
import type { KeptChangeset } from "./kept-changeset.ts";
import type { KeptFolder } from "./kept-folder.ts";
import { agreedIn, outcomesOf, withOutcomes } from "./waiting.ts";

export interface KeptApplication extends ApplicationOptions {
  readonly limits?: ApplyLimits | undefined;
}

/** Applies those of `which` that still wait. The outcomes are in the folder's state. */
export async function applyKept(
  folder: KeptFolder,
  { changeset, state, waiting }: KeptChangeset,
  which: ReadonlySet<number>,
  options: KeptApplication,
): Promise<Settled[]> {
  const agreed = changeset.changes.map(({ index }) => index).filter((index) => which.has(index) && waiting.has(index));
  return await applyChangeset(changeset, agreed, { ...options, ...logIn(folder, state) });
}

/** Applies what was agreed to, after `before`. Null if nothing was. */
export async function applyAgreed(
  folder: KeptFolder,
  before: (agreed: Changeset) => Promise<void>,
): Promise<readonly Settled[] | null> {
  const kept = await folder.read();
  const agreed = agreedIn(kept.state);
  if (agreed.size === 0) return null;
  await before(only(kept.changeset, agreed));
  return await applyKept(folder, kept, agreed, {});
}

/** Continues an application whose process ended. Null if none was begun. */
export async function finishApplication(
  folder: KeptFolder,
  { signal, onStep }: ApplicationOptions,
): Promise<readonly Settled[] | null> {
  if (!isThere(folder.applyLog)) return null;
  const { changeset, state } = await folder.read();
  return await finishInterrupted(changeset, { signal, onStep, ...logIn(folder, state) });
}

function logIn(folder: KeptFolder, state: KeptChangeset["state"]) {
  const onSettled = async (settled: readonly Settled[]) =>
    await folder.writeState(withOutcomes(state, outcomesOf(settled)));
  return { logDir: folder.dir, onSettled };
}
