import { within } from "../../platform/within.ts";

/** Further ones are left to the next start of Corral. */
const MAX_LEFT = 10_000;
/** The first pause before what is left is tried again. Each is twice as long as the one before, up to the longest. */
const FIRST_PAUSE_MS = 2000;
const LONGEST_PAUSE_MS = 60_000;
/** The Engine is away, if so many fail one after another. */
const MAX_FAILURES = 3;
/** The end of a project does not wait longer. */
const AT_END_MS = 5000;
/** An Engine that ends still answers to calls that it has begun; so long at most before others fail. */
const DOUBT_MS = 60_000;
const MAX_REMOVED = 1000;

/** Rejects if it has to be tried again. It removes nothing more from the moment on in which `isLeft` is false. */
export type Removal = (isLeft: () => boolean) => Promise<void>;

/**
 * What this process could not remove, since the Engine was away or lost the answer. No other process removes it while this one lives,
 * which may be for weeks. So it is tried again, beside everything else; nothing waits for it, and no error is reported a second time.
 */
export class Unremoved {
  readonly #left = new Map<string, Removal>();
  /** What the Engine removed, as it says. The latest is the last. */
  readonly #removed = new Map<string, { readonly removal: Removal; readonly atMs: number }>();
  #doubtedAtMs = Number.NEGATIVE_INFINITY;
  #trying: Promise<void> | null = null;
  #timer: NodeJS.Timeout | null = null;
  #pauseMs = FIRST_PAUSE_MS;

  add(name: string, removal: Removal): void {
    if (this.#left.size >= MAX_LEFT && !this.#left.has(name)) return;
    this.#left.set(name, removal);
    this.#later();
  }

  /**
   * The Engine has removed it, as it says. An Engine that is ending says so and leaves volumes, and only calls after that show that it
   * ended: then the removal is made again. `sinceMs`, as of `performance.now()`: when this was begun.
   */
  removed(name: string, { removal, sinceMs }: { readonly removal: Removal; readonly sinceMs: number }): void {
    const now = performance.now();
    if (this.#doubtedAtMs >= sinceMs) {
      this.add(name, removal);
      return;
    }
    for (const [old, { atMs }] of this.#removed) {
      if (this.#removed.size < MAX_REMOVED && now - atMs <= DOUBT_MS) break;
      this.#removed.delete(old);
    }
    this.#removed.delete(name);
    this.#removed.set(name, { removal, atMs: now });
  }

  /** The Engine failed: what it removed shortly before may be left. */
  doubt(): void {
    const now = performance.now();
    this.#doubtedAtMs = now;
    for (const [name, { removal, atMs }] of this.#removed) if (now - atMs <= DOUBT_MS) this.add(name, removal);
    this.#removed.clear();
  }

  /** Takes it back: something else gets this name. True if something may be left. */
  take(name: string): boolean {
    this.#removed.delete(name);
    return this.#left.delete(name);
  }

  /** One more attempt, which takes some seconds at most. Never rejects. True if nothing is left. */
  async tryAtEnd(): Promise<boolean> {
    if (this.#left.size > 0) await within(this.#tryAll(), AT_END_MS);
    return this.#left.size === 0;
  }

  /** The process may end meanwhile. */
  #later(): void {
    this.#timer ??= setTimeout(() => {
      this.#timer = null;
      void this.#tryAll();
    }, this.#pauseMs).unref();
  }

  async #tryAll(): Promise<void> {
    this.#trying ??= this.#tryEach().finally(() => {
      this.#trying = null;
      this.#pauseMs = this.#left.size === 0 ? FIRST_PAUSE_MS : Math.min(2 * this.#pauseMs, LONGEST_PAUSE_MS);
      if (this.#left.size > 0) this.#later();
    });
    await this.#trying;
  }

  async #tryEach(): Promise<void> {
    let failures = 0;
    for (const [name, removal] of [...this.#left]) {
      const isLeft = (): boolean => this.#left.get(name) === removal;
      if (!isLeft()) continue;
      const isRemoved = await removal(isLeft).then(
        () => true,
        () => false,
      );
      if (isLeft()) {
        this.#left.delete(name);
        // Behind all others, so that one which never succeeds keeps none from being tried.
        if (!isRemoved) this.#left.set(name, removal);
      }
      failures = isRemoved ? 0 : failures + 1;
      if (failures === MAX_FAILURES) return;
    }
  }
}
