/** An invalid pattern, template or manifest format of a fleet. The message is for the user. */
export class ItemsError extends Error {
  override readonly name: string = "ItemsError";
}

/**
 * One item makes no valid request. The reader of items decides what to do, so that one hostile line does not affect the
 * others.
 */
export class ItemRefusal extends ItemsError {
  override readonly name = "ItemRefusal";
  readonly index: number;
  readonly place: string;
  /** Null if the item has no valid key. */
  readonly key: string | null;
  /** Each names the template, the field, the reason and what is allowed. */
  readonly problems: readonly string[];

  constructor(
    item: { readonly index: number; readonly place: string },
    key: string | null,
    problems: readonly string[],
  ) {
    super(problems.map((problem) => `${item.place}: ${problem}`).join("\n"));
    this.index = item.index;
    this.place = item.place;
    this.key = key;
    this.problems = problems;
  }
}

/** The result of a step that may fail because of an item or a template. `fault` continues the name of its subject. */
export type Outcome<Value> =
  | { readonly ok: true; readonly value: Value }
  | { readonly ok: false; readonly fault: string };

/** Collects all faults, so that they are reported together. */
export class Faults {
  readonly found: string[] = [];

  /** The value; or null, and the fault is recorded under the name of its subject. */
  valueOf<Value>(about: string, outcome: Outcome<Value>): Value | null {
    if (outcome.ok) return outcome.value;
    this.found.push(`${about}: ${outcome.fault}`);
    return null;
  }
}
