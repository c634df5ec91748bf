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
