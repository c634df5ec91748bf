import type { ClaimedItem } from "./model/queue.ts";

/** Items are claimed ahead that begin within about so much time. */
const AHEAD_MS = 100;
const MAX_AHEAD = 32;

export interface AheadParts {
  /** Settles when the item has ended. */
  readonly begin: (item: ClaimedItem) => Promise<void>;
  readonly giveBack: (item: ClaimedItem) => Promise<void>;
  /** Milliseconds of a clock that only goes forward. */
  readonly now: () => number;
  /** False: no item waits here longer than until there is a place for it. */
  readonly isUsed: boolean;
}

interface Waiting {
  readonly begin: () => void;
  readonly giveBack: () => void;
}

/**
 * Items that are claimed and have not begun, so that quick items do not wait for the store. Only as many as begin within a moment, judged
 * by how long items of late took: of items that take seconds none is claimed before there is a place for it.
 */
export class ClaimedAhead {
  /** Items that run at once. */
  lanes = 1;
  readonly #parts: AheadParts;
  readonly #waiting: Waiting[] = [];
  readonly #back = new Set<Promise<void>>();
  /** When each item that runs began; the oldest first. */
  readonly #running = new Map<symbol, number>();
  /** How long items of late took; null: none has ended. */
  #recentMs: number | null = null;
  #isOver = false;

  constructor(parts: AheadParts) {
    this.#parts = parts;
  }

  get count(): number {
    return this.#waiting.length;
  }

  /** How many more to claim; 0 while half of them are left, so that several are claimed together. */
  get missing(): number {
    const most = this.#most();
    return 2 * this.count > most ? -this.count : most - this.count;
  }

  /** Settles when the item has ended, or was given back. */
  async add(item: ClaimedItem): Promise<void> {
    const { promise, resolve } = Promise.withResolvers<void>();
    this.#waiting.push({
      begin: () => resolve(this.#parts.begin(item)),
      giveBack: () => resolve(this.#givenBack(item)),
    });
    if (this.#isOver) this.end();
    await promise;
  }

  /** False if there is none. */
  beginNext(): boolean {
    const next = this.#waiting.shift();
    next?.begin();
    return next !== undefined;
  }

  /** Call it when an item begins to run; the answer when it has ended, also more than once. */
  measure(): () => void {
    const { now } = this.#parts;
    const [id, begunAt] = [Symbol("item"), now()];
    this.#running.set(id, begunAt);
    return () => {
      if (!this.#running.delete(id)) return;
      const tookMs = now() - begunAt;
      this.#recentMs = ((this.#recentMs ?? tookMs) * 3 + tookMs) / 4;
    };
  }

  /** Gives items back that were expected to begin sooner: those that run now take longer than those before. */
  releaseLate(): void {
    if (this.#most() === 0) this.#giveAllBack();
  }

  /** Gives back all, also those that come later. */
  end(): void {
    this.#isOver = true;
    this.#giveAllBack();
  }

  async allBack(): Promise<void> {
    await Promise.allSettled(this.#back);
  }

  #giveAllBack(): void {
    for (const { giveBack } of this.#waiting.splice(0)) giveBack();
  }

  async #givenBack(item: ClaimedItem): Promise<void> {
    const back = this.#parts.giveBack(item);
    this.#back.add(back);
    try {
      await back;
    } finally {
      this.#back.delete(back);
    }
  }

  #most(): number {
    if (!this.#parts.isUsed || this.#recentMs === null || this.#isOver) return 0;
    const [oldest] = this.#running.values();
    const elapsedMs = oldest === undefined ? 0 : this.#parts.now() - oldest;
    return Math.min(MAX_AHEAD, Math.floor((AHEAD_MS * this.lanes) / Math.max(1, this.#recentMs, elapsedMs)));
  }
}
