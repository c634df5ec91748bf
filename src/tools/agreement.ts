import type { ConsentNeed } from "../files/checked-access.ts";
import type { AgreementRequest, Hands } from "./hands.ts";

/** What a person sees of an operation before they approve it. */
export type Shown = Pick<AgreementRequest, "diff" | "before">;

/**
 * Asks for each need whose consent is `ask`, one after another. `shown` builds what the person sees of the change; it is
 * called only if a person is asked.
 */
export async function agreeTo(
  needs: readonly ConsentNeed[],
  hands: Hands,
  signal: AbortSignal,
  shown: () => Shown | Promise<Shown> = () => ({}),
): Promise<void> {
  for (const { operation, path, consent } of needs) {
    // `GuardedFiles` refuses a blocked operation itself; no approval can allow it.
    if (consent !== "ask") continue;
    await hands.agree({ operation, path, ...(await shown()) }, signal);
  }
}
