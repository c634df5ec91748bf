import type { RunEnvironment } from "../run/model/environment.ts";
import type { Emit } from "../run/model/events.ts";

/** Runs whose troubles are kept until they are taken; the oldest are dropped first. */
const MAX_RUNS = 1000;
/** Texts for each run, and characters of each text. */
const MAX_TEXTS = 3;
const MAX_CHARS = 500;

/**
 * Troubles that runs reported to the user. A RunResult contains only what workers may read, such as "the Engine failed"; a
 * fleet's results add the details.
 */
export class RunTroubles {
  readonly #byRoot = new Map<string, Set<string>>();

  /** The environment, with an `emit` that also collects troubles. */
  listeningIn(env: RunEnvironment): RunEnvironment {
    const emit: Emit = (event) => {
      if (event.type === "trouble") this.add(event.root, event.detail);
      env.emit(event);
    };
    return { ...env, emit };
  }

  add(root: string, detail: string): void {
    const told = this.#byRoot.get(root) ?? new Set();
    this.#byRoot.set(root, told);
    if (told.size < MAX_TEXTS) told.add(detail.slice(0, MAX_CHARS));
    if (this.#byRoot.size > MAX_RUNS) this.#byRoot.delete(this.#byRoot.keys().next().value ?? root);
  }

  /** Returns and forgets the troubles of the tree of runs with this root, without repetitions. */
  take(root: string): readonly string[] {
    const told = this.#byRoot.get(root);
    this.#byRoot.delete(root);
    return [...(told ?? [])];
  }
}
