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
