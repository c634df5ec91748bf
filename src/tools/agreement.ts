import type { ConsentNeed } from "../files/gate.ts";
import type { AgreementRequest, Hands } from "./hands.ts";

/** What somebody sees of an operation before they agree to it. */
export type Shown = Pick<AgreementRequest, "diff" | "before">;

/**
 * Asks, one after another, for what an operation may only do with a person's agreement. `shown`: what it would change,
 * for them to see; made only where somebody is asked.
 */
export async function agreeTo(
  needs: readonly ConsentNeed[],
  hands: Hands,
  signal: AbortSignal,
  shown: () => Shown | Promise<Shown> = () => ({}),
): Promise<void> {
  for (const { operation, path, consent } of needs) {
    // What is blocked is refused by the files themselves, whoever would agree.
    if (consent !== "ask") continue;
    await hands.agree({ operation, path, ...(await shown()) }, signal);
  }
}
