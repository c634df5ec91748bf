import type { ConsentNeed } from "../files/gate.ts";
import type { Hands } from "./hands.ts";

/** Asks, one after another, for what an operation may only do with a person's agreement. */
export async function agreeTo(needs: readonly ConsentNeed[], hands: Hands, signal: AbortSignal): Promise<void> {
  for (const { operation, path, consent } of needs) {
    // What is blocked is refused by the files themselves, whoever would agree.
    if (consent === "ask") await hands.agree({ operation, path }, signal);
  }
}
