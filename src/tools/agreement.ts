import type { ConsentNeed } from "../files/gate.ts";
import type { Hands } from "./hands.ts";

/**
 * Asks, one after another, for what an operation may only do with a person's agreement. `diffOf`: what it would change,
 * for them to see; made only where somebody is asked.
 */
export async function agreeTo(
  needs: readonly ConsentNeed[],
  hands: Hands,
  signal: AbortSignal,
  diffOf?: () => string | Promise<string>,
): Promise<void> {
  for (const { operation, path, consent } of needs) {
    // What is blocked is refused by the files themselves, whoever would agree.
    if (consent !== "ask") continue;
    const diff = await diffOf?.();
    await hands.agree({ operation, path, ...(diff === undefined ? {} : { diff }) }, signal);
  }
}
