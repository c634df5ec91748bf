import { sha256 } from "../../platform/sha256.ts";
import type { AttemptDelivery, ClaimedWork, Membership, Offer } from "../model/work.ts";

/** Fleets whose cells and files are kept ready at once; further ones wait until one of these has ended. */
const MAX_OPEN = 32;
/** Fleets that are prepared at once: each may bring many files here. */
const MAX_OPENING = 2;
/** Offers that are looked at, the first ones: the database gives no more. */
const MAX_OFFERS = 1000;
/** The name of a fleet in the database is longer nowhere. */
const MAX_NAME = 200;
/** A fleet that was refused is checked again after this time: what was missing may be there. */
const RECHECK_MS = 15_000;

type Place =
  | { readonly state: "opening"; readonly agreed: string; readonly ends: AbortController }
  | { readonly state: "open"; readonly agreed: string; readonly fleet: HostedFleet; running: number; isOver: boolean }
  | { readonly state: "refused"; readonly agreed: string; readonly why: string; readonly atMs: number };

interface HostingParts {
  readonly membership: Pick<Membership, "refuses">;
  readonly host: HostFleet;
  readonly onEvent: OnWorkEvent;
  /** Milliseconds of a clock that only goes forward. */
  readonly now: () => number;
  /** A fleet is ready, or was refused. */
  readonly onChange: () => void;
}

/** The fleets of others that this machine knows: those whose items it takes, and those that differ from what is declared here. */
export class HostedFleets implements AsyncDisposable {
  readonly #parts: HostingParts;
  readonly #places = new Map<string, Place>();
  /** What is being opened or closed. */
  readonly #pending = new Set<Promise<void>>();

  constructor(parts: HostingParts) {
    this.#parts = parts;
  }

  /** Those whose items may be claimed. */
  get open(): string[] {
    return [...this.#places].flatMap(([id, place]) => (place.state === "open" && !place.isOver ? [id] : []));
  }

  /** Opens what is new and closes what is over, without waiting for either. */
  follow(all: readonly Offer[]): void {
    const offers = all
      .slice(0, MAX_OFFERS)
      .filter(({ fleet }) => typeof fleet === "string" && fleet.length <= MAX_NAME);
    const offered = new Map(offers.map((offer) => [offer.fleet, offer]));
    for (const [id, place] of [...this.#places]) {
      const offer = offered.get(id);
      if (offer === undefined || place.agreed !== agreedText(offer)) this.#close(id, place);
      // Its coordinator was away, and items of it ran here all the time.
      else if (place.state === "open") place.isOver = false;
    }
    for (const offer of offers) this.#look(offer);
  }

  /** The fleet, for one attempt; null: it was closed meanwhile. */
  take(id: string): { readonly fleet: HostedFleet; readonly done: () => void } | null {
    const place = this.#places.get(id);
    if (place?.state !== "open") return null;
    place.running += 1;
    const done = (): void => {
      place.running -= 1;
    };
    return { fleet: place.fleet, done };
  }

  async [Symbol.asyncDispose](): Promise<void> {
    for (const [id, place] of [...this.#places]) this.#close(id, place);
    await Promise.all(this.#pending);
  }

  /** A failure to remove cells is reported, and what is left is reaped by the next start. */
  #pend(work: PromiseLike<void>): void {
    const pending = Promise.resolve(work)
      .catch((error: Error) => this.#parts.onEvent({ type: "trouble", detail: error.message }))
      .finally(() => this.#pending.delete(pending));
    this.#pending.add(pending);
  }

  #look(offer: Offer): void {
    const { fleet: id } = offer;
    const known = this.#places.get(id);
    if (known !== undefined && known.state !== "refused") return;
    if (known?.state === "refused" && this.#parts.now() - known.atMs < RECHECK_MS) return;
    const states = [...this.#places.values()].map(({ state }) => state);
    if (states.filter((state) => state === "opening").length >= MAX_OPENING) return;
    if (states.filter((state) => state !== "refused").length >= MAX_OPEN) return;
    const ends = new AbortController();
    const before = known?.state === "refused" ? known.why : null;
    this.#places.set(id, { state: "opening", agreed: agreedText(offer), ends });
    this.#pend(this.#opened(offer, before, ends.signal));
  }

  async #opened(offer: Offer, before: string | null, signal: AbortSignal): Promise<void> {
    const { host, onEvent, now, onChange, membership } = this.#parts;
    const { fleet: id } = offer;
    const agreed = agreedText(offer);
    const hosting = await host(offer, signal).catch((error: Error) => ({ ok: false as const, why: error.message }));
    // It was closed while it opened.
    if (signal.aborted) return void (hosting.ok && (await hosting.fleet[Symbol.asyncDispose]()));
    if (hosting.ok) {
      this.#places.set(id, { state: "open", agreed, fleet: hosting.fleet, running: 0, isOver: false });
      onEvent({ type: "taking", fleet: id, worker: hosting.fleet.worker });
    } else {
      this.#places.set(id, { state: "refused", agreed, why: hosting.why, atMs: now() });
      if (hosting.why !== before) onEvent({ type: "not_taking", fleet: id, why: hosting.why });
    }
    onChange();
    // Only people read it.
    await membership.refuses(id, hosting.ok ? null : hosting.why).catch(() => {});
  }

  /** One that still runs items stays until they have ended, and gets no more unless it is offered again. */
  #close(id: string, place: Place): void {
    if (place.state === "open" && place.running > 0) {
      place.isOver = true;
      return;
    }
    this.#places.delete(id);
    if (place.state === "opening") place.ends.abort(new Error("the fleet is over"));
    if (place.state !== "open") return;
    this.#parts.onEvent({ type: "closed", fleet: id });
    this.#pend(place.fleet[Symbol.asyncDispose]());
  }
}

/** If its coordinator agrees to something else meanwhile, the fleet is compared again. The digest: a text may be as long as its coordinator likes. */
function agreedText({ agreement, spec }: Offer): string {
  return sha256(JSON.stringify([spec, agreement]));
}

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
  | { readonly outcome: "delivery"; readonly delivery: AttemptDelivery }
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

/** What happens on a machine that runs items of fleets. */
export type WorkEvent =
  /** The container engine or the queue is away: it tries again until that is there, or it is stopped. */
  | { readonly type: "waiting"; readonly for: "engine" | "queue"; readonly why: string }
  | { readonly type: "joined"; readonly name: string; readonly slots: number; readonly labels: readonly string[] }
  /** Its items are taken from now on. */
  | { readonly type: "taking"; readonly fleet: string; readonly worker: string }
  /** Why none of its items are taken. */
  | { readonly type: "not_taking"; readonly fleet: string; readonly why: string }
  /** It has ended, or its coordinator runs no more of it. */
  | { readonly type: "closed"; readonly fleet: string }
  | ({ readonly type: "started" } & AttemptName)
  | ({ readonly type: "delivered"; readonly status: string; readonly durationMs: number } & AttemptName)
  /** Another attempt counts meanwhile: nothing of this one was recorded. */
  | ({ readonly type: "late"; readonly reason: string } & AttemptName)
  /** `hasBegun`: its worker had begun. */
  | ({ readonly type: "given_back"; readonly why: string; readonly hasBegun: boolean } & AttemptName)
  /** For the user only: it may contain host paths. */
  | { readonly type: "trouble"; readonly detail: string }
  /** Its lease has ended: everything that ran is ended, and other processes run it again. */
  | { readonly type: "lost" }
  | { readonly type: "draining"; readonly why: string };

export interface AttemptName {
  readonly fleet: string;
  readonly index: number;
  readonly key: string;
  /** From 1. */
  readonly attempt: number;
}

export type OnWorkEvent = (event: WorkEvent) => void;
