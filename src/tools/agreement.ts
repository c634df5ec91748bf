import type { Expected } from "../files/model/files.ts";
import type { Intended } from "../files/model/foreseen.ts";
import type { Hands } from "./hands.ts";
import { shownEffects } from "./shown-effects.ts";

/**
 * Asks for each operation whose consent is `ask`, one after another. What the operation would be refused for is refused
 * first. Returns what was shown, so that nothing else is done; undefined if no question was asked.
 */
export async function agreeTo(intended: Intended, hands: Hands, signal: AbortSignal): Promise<Expected | undefined> {
  const { operation, path } = intended;
  const needs = hands.files.needs(operation, path, "to" in intended ? intended.to : undefined);
  // A blocked operation is refused by the files themselves; no approval can allow it.
  const asked = needs.filter(({ consent }) => consent === "ask");
  if (asked.length === 0) return undefined;
  const foreseen = await hands.files.foresee(intended, { signal });
  const { diff, covered } = shownEffects(intended, foreseen);
  for (const need of asked) {
    const ofThis = covered.filter((one) => one.operation === need.operation);
    await hands.agree({ operation: need.operation, path: need.path, diff, covered: ofThis }, signal);
  }
  return foreseen.expected;
}
