/** What somebody asked of a fleet and must change: a pattern, a template, a manifest of unknown form. Worded for people. */
export class ItemsError extends Error {
  override readonly name: string = "ItemsError";
}

/**
 * One item of which no request can be made. Whoever reads items decides what that means: what is asked of one hostile
 * line need not be lost for all others.
 */
export class ItemRefusal extends ItemsError {
  override readonly name = "ItemRefusal";
  readonly index: number;
  readonly place: string;
  /** Each says which template and which field, why, and what is allowed. */
  readonly problems: readonly string[];

  constructor(item: { readonly index: number; readonly place: string }, problems: readonly string[]) {
    super(problems.map((problem) => `${item.place}: ${problem}`).join("\n"));
    this.index = item.index;
    this.place = item.place;
    this.problems = problems;
  }
}

/** What came of a step that an item or a person's text may make impossible. `fault` follows the name of what is wrong. */
export type Outcome<Value> =
  | { readonly ok: true; readonly value: Value }
  | { readonly ok: false; readonly fault: string };

/** Collects what is wrong, so that all of it is told at once. */
export class Faults {
  readonly found: string[] = [];

  /** The value, or null where there is none; then the fault is noted under the name of what it is about. */
  valueOf<Value>(about: string, outcome: Outcome<Value>): Value | null {
    if (outcome.ok) return outcome.value;
    this.found.push(`${about}: ${outcome.fault}`);
    return null;
  }
}
