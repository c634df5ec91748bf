const SLOT_MS = 500;
const SLOTS = 20;

/** How many things happened per second in about the last ten. */
export class RecentRate {
  readonly #startedAt: number;
  readonly #slots = Array.from({ length: SLOTS }, () => ({ number: -1, count: 0 }));

  /** Times are milliseconds of a clock that only goes forward. */
  constructor(startedAt: number) {
    this.#startedAt = startedAt;
  }

  add(now: number): void {
    const number = Math.floor(now / SLOT_MS);
    const slot = this.#slots[number % SLOTS];
    if (slot === undefined) return;
    if (slot.number !== number) Object.assign(slot, { number, count: 0 });
    slot.count += 1;
  }

  /** The current slot counts for the part of it that has passed; the first moment counts as a whole one. */
  perSecond(now: number): number {
    const number = Math.floor(now / SLOT_MS);
    const recent = this.#slots.filter((slot) => slot.number > number - SLOTS && slot.number <= number);
    const count = recent.reduce((sum, slot) => sum + slot.count, 0);
    const coveredMs = now - Math.max(this.#startedAt, (number - SLOTS + 1) * SLOT_MS);
    return (count * 1000) / Math.max(SLOT_MS, coveredMs);
  }
}
