import type { AppliedChange, AppliedChangeset } from "../../operations/changeset-facts.ts";
import { printableLine, visibleName } from "../../text/visible.ts";
import { printJson, printJsonLine, say, type Terminal } from "../terminal/terminal.ts";
import { countsText } from "./changes-text.ts";
import type { Target } from "./targets.ts";

interface Manner {
  readonly json: boolean;
  readonly isFleet: boolean;
  /** The changeset was named, so its answer in JSON is no list. */
  readonly isOne: boolean;
}

/** The reason of what a person skipped. */
export const NOT_CHOSEN = "it was not chosen";

/** Of a fleet, how many changes that were not applied are named one by one. */
const MAX_NAMED = 50;

/** Tells what was applied: each changeset by itself, or all of a fleet together, however many there are. */
export class AppliedTally {
  readonly #terminal: Terminal;
  readonly #how: Manner;
  readonly #answers: object[] = [];
  readonly #counts = new Map<string, number>();
  #named = 0;
  #items = 0;

  constructor(terminal: Terminal, how: Manner) {
    this.#terminal = terminal;
    this.#how = how;
  }

  add(done: AppliedChangeset, { item }: Target): void {
    this.#items += 1;
    for (const { outcome } of done.changes) this.#counts.set(outcome, (this.#counts.get(outcome) ?? 0) + 1);
    this.#tellUnapplied(done.changes);
    const { json, isFleet } = this.#how;
    // One line for each item: ten thousand of them are never in memory.
    if (json && isFleet) printJsonLine(this.#terminal, { item, ...done });
    else if (json) this.#answers.push(done);
    else if (!isFleet) this.#tellCounts(done);
  }

  end(): void {
    const { json, isFleet, isOne } = this.#how;
    if (json && !isFleet) for (const one of isOne ? this.#answers : [this.#answers]) printJson(this.#terminal, one);
    if (this.#named > MAX_NAMED) say(this.#terminal, `corral: and ${this.#named - MAX_NAMED} more`);
    if (json || !isFleet || this.#items === 0) return;
    const counts = [...this.#counts].map(([outcome, count]) => `${count} ${outcome}`).join(", ");
    const what = this.#items === 1 ? "1 item" : `${this.#items} items`;
    this.#terminal.stdout.write(`${what}: ${counts || "nothing"}\n`);
  }

  #tellUnapplied(changes: readonly AppliedChange[]): void {
    const withheld = new Map<string, number>();
    // A person who skipped a file knows it.
    for (const { path, outcome, reason } of changes.filter((one) => one.reason !== NOT_CHOSEN)) {
      const why = printableLine(reason ?? "", 500);
      // One answer may be on thousands of changes.
      if (outcome === "denied" || outcome === "held") withheld.set(why, (withheld.get(why) ?? 0) + 1);
      else if (outcome !== "applied") this.#name(`${outcome}: ${visibleName(path)}: ${why}`);
    }
    for (const [why, count] of withheld) this.#name(`corral: ${count} not applied: ${why}`);
  }

  #name(line: string): void {
    this.#named += 1;
    if (!this.#how.isFleet || this.#named <= MAX_NAMED) say(this.#terminal, line);
  }

  #tellCounts({ changes, left }: AppliedChangeset): void {
    if (changes.every(({ outcome }) => outcome === "denied" || outcome === "held"))
      say(this.#terminal, "Nothing was applied.");
    else this.#terminal.stdout.write(`${countsText(changes)}${left > 0 ? `; ${left} wait` : ""}\n`);
  }
}
