import type { ClaimedWork, Delivery, Offer } from "../model/work.ts";

/** A fleet of another process, ready to run here. Disposing removes its cells. */
export interface HostedFleet extends AsyncDisposable {
  readonly worker: string;
  /** One attempt. It rejects only for bugs. `turn` is called when its cell is ready, and settles when it may begin. */
  attempt(
    item: ClaimedWork,
    how: { readonly signal: AbortSignal; readonly turn: () => Promise<void> },
  ): Promise<Brought>;
}

/** What came of an attempt. */
export type Brought =
  | { readonly outcome: "delivery"; readonly delivery: Delivery }
  /**
   * It says nothing about the item, which runs again. `isUnwell`: this machine lacks something that all items need, so it takes none for a
   * while.
   */
  | { readonly outcome: "given_up"; readonly why: string; readonly isUnwell: boolean };

export type Hosting =
  | { readonly ok: true; readonly fleet: HostedFleet }
  /** `why`: in words for the owner of the machine. */
  | { readonly ok: false; readonly why: string };

/** Compares the fleet with what is declared here, and prepares what its items read. */
export type HostFleet = (offer: Offer, signal: AbortSignal) => Promise<Hosting>;
