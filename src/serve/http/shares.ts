import type { ServiceCaller } from "./router.ts";

/** Who holds a part: a token, the page's own, or all that come by the Unix socket. */
export interface ShareOwner {
  readonly key: string;
  /** Null: one that is in no file, and cannot be removed. */
  readonly token: string | null;
  /** Those of admins have a whole of their own, so that no other token is in their way. */
  readonly isAdmin: boolean;
}

export function ownerOf({ name, token, roles }: ServiceCaller): ShareOwner {
  return { key: token ?? name, token, isAdmin: roles.includes("admin") };
}

export interface ShareLimits {
  /** Of all owners of a kind together. */
  readonly all: number;
  readonly each: number;
}

/** What one request or connection has of a whole. Disposing gives it back. */
export interface HeldShare extends Disposable {
  readonly owner: ShareOwner;
  readonly amount: number;
  /** False: there is no room for so much more. */
  take(amount: number): boolean;
  /** From now on it does not give way. */
  keep(): void;
}

interface Held extends Omit<HeldShare, "amount"> {
  amount: number;
  giveWay: (() => void) | null;
}

/**
 * What the clients of a service share: places, bytes in memory, bytes on the disk. No owner holds more than its share. If many owners together
 * hold the whole, the one that holds most gives way to one that holds less, so that none is shut out.
 */
export class Shares {
  readonly limits: ShareLimits;
  /** In the order in which they were opened. */
  readonly #open = new Set<Held>();

  constructor(limits: ShareLimits) {
    this.limits = limits;
  }

  /** A part that is empty. `giveWay`: ends what needs it. */
  open(owner: ShareOwner, giveWay: () => void): HeldShare {
    const held: Held = {
      owner,
      amount: 0,
      giveWay,
      take: (amount) => this.#take(held, amount),
      keep: () => {
        held.giveWay = null;
      },
      [Symbol.dispose]: () => void this.#open.delete(held),
    };
    this.#open.add(held);
    return held;
  }

  /** Ends what tokens hold that are no more. */
  endAllBut(tokens: ReadonlySet<string>): void {
    for (const { owner, giveWay } of this.#open) if (owner.token !== null && !tokens.has(owner.token)) giveWay?.();
  }

  #take(held: Held, amount: number): boolean {
    const { all, each } = this.limits;
    const { owner } = held;
    const sums = new Map<string, number>();
    let sum = 0;
    for (const one of this.#open) {
      if (one.owner.isAdmin !== owner.isAdmin) continue;
      sum += one.amount;
      sums.set(one.owner.key, (sums.get(one.owner.key) ?? 0) + one.amount);
    }
    const own = (sums.get(owner.key) ?? 0) + amount;
    if (own > each) return false;
    while (sum + amount > all) {
      const giving = this.#heaviest(sums, owner.isAdmin);
      if (giving === null || (sums.get(giving.owner.key) ?? 0) <= own) return false;
      sum -= giving.amount;
      sums.set(giving.owner.key, (sums.get(giving.owner.key) ?? 0) - giving.amount);
      this.#open.delete(giving);
      giving.giveWay?.();
    }
    held.amount += amount;
    return true;
  }

  /** The oldest part of the owner that holds most, of those that can give way. */
  #heaviest(sums: ReadonlyMap<string, number>, isAdmin: boolean): Held | null {
    let found: Held | null = null;
    for (const one of this.#open) {
      if (one.giveWay === null || one.amount === 0 || one.owner.isAdmin !== isAdmin) continue;
      if (found === null || (sums.get(one.owner.key) ?? 0) > (sums.get(found.owner.key) ?? 0)) found = one;
    }
    return found;
  }
}
