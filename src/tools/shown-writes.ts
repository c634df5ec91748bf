import type { VirtualPath } from "../sandbox/virtual-path.ts";
import type { CoveredWrite } from "./hands.ts";
import { MAX_SHOWN_CHARS, shownWrite, type WriteEffect } from "./shown-effects.ts";

/** Of both versions of all files: comparing takes time. */
const MAX_COMPARED_BYTES = 8 * 1024 ** 2;

/**
 * What a person sees of many files that one use of a tool writes: a whole diff of each, as long as there is room. What is not
 * shown completely is not agreed to, and is asked about again when it is applied.
 */
export class ShownWrites {
  readonly #lines: string[] = [];
  readonly #covered = new Map<VirtualPath, CoveredWrite>();
  #charsLeft = MAX_SHOWN_CHARS;
  #bytesLeft = MAX_COMPARED_BYTES;
  #notNamed = 0;

  /** In the order in which they are shown. */
  add(effect: WriteEffect): void {
    if (this.#charsLeft <= 0) {
      this.#notNamed += 1;
      return;
    }
    const bytes = effect.after.bytes + (effect.before?.bytes ?? 0);
    const isCompared = bytes <= this.#bytesLeft;
    if (isCompared) this.#bytesLeft -= bytes;
    const { lines, covered } = shownWrite(effect, isCompared ? this.#charsLeft : 0);
    // One by one: a call takes only so many arguments.
    for (const line of lines) {
      this.#charsLeft -= line.length + 1;
      this.#lines.push(line);
    }
    if (covered !== null) this.#covered.set(effect.path, covered);
  }

  /** Each line is safe to print. */
  get diff(): string {
    const more = this.#notNamed === 0 ? [] : [`and ${this.#notNamed} more files, which are not shown`];
    return [...this.#lines, ...more].join("\n");
  }

  /** What the diff shows completely. */
  coveredAt(path: VirtualPath): CoveredWrite | null {
    return this.#covered.get(path) ?? null;
  }
}
