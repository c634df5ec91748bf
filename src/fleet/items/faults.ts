/** An invalid pattern, template or manifest format of a fleet. The message is for the user. */
export class ItemsError extends Error {
  override readonly name: string = "ItemsError";
}

/** A mistake in the template itself, which no item can mend. It is reported once, before a fleet is made. */
export class TemplateError extends ItemsError {
  override readonly name = "TemplateError";
  readonly problems: readonly TemplateProblem[];

  constructor(problems: readonly TemplateProblem[]) {
    super(problems.map(({ about, fault }) => `${about}: ${fault}`).join("\n"));
    this.problems = problems;
  }
}

export interface TemplateProblem {
  /** The kind of template, and its text: `attach {pth}=in.pdf`. */
  readonly about: string;
  readonly fault: string;
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
  /** Those that are mistakes of the template, if other items have the same fields. */
  readonly ofTemplate: readonly TemplateProblem[];

  constructor(
    item: { readonly index: number; readonly place: string },
    key: string | null,
    { found, ofTemplate }: Pick<Faults, "found" | "ofTemplate">,
  ) {
    super(found.map((problem) => `${item.place}: ${problem}`).join("\n"));
    this.index = item.index;
    this.place = item.place;
    this.key = key;
    this.problems = found;
    this.ofTemplate = ofTemplate;
  }
}

/** The result of a step that may fail because of an item or a template. `fault` continues the name of its subject. */
export type Outcome<Value> =
  | { readonly ok: true; readonly value: Value }
  /** `ofTemplate`: the fault is of the template, for every item with the same fields. */
  | { readonly ok: false; readonly fault: string; readonly ofTemplate?: boolean };

/** Collects all faults, so that they are reported together. */
export class Faults {
  readonly found: string[] = [];
  readonly ofTemplate: TemplateProblem[] = [];

  /** The value; or null, and the fault is recorded under the name of its subject. */
  valueOf<Value>(about: string, outcome: Outcome<Value>): Value | null {
    if (outcome.ok) return outcome.value;
    this.found.push(`${about}: ${outcome.fault}`);
    if (outcome.ofTemplate) this.ofTemplate.push({ about, fault: outcome.fault });
    return null;
  }
}
