import type { RunEnvironment } from "../run/model/environment.ts";
import type { Emit } from "../run/model/events.ts";

/** Of how many runs troubles are kept that nobody has asked for; the oldest go first. */
const MAX_RUNS = 1000;
/** Of one run, and of one text of it. */
const MAX_TOLD = 3;
const MAX_CHARS = 500;

/**
 * What runs told people of. A result says only what workers may read as well, such as that the Engine failed; whoever
 * reads a fleet's results, perhaps the next day, is to know how.
 */
export class RunTroubles {
  readonly #byRoot = new Map<string, Set<string>>();

  /** The environment whose runs are listened to. */
  listeningIn(env: RunEnvironment): RunEnvironment {
    const emit: Emit = (event) => {
      if (event.type === "trouble") this.#add(event.root, event.detail);
      env.emit(event);
    };
    return { ...env, emit };
  }

  /** What the tree of runs with this root has told so far, each thing once. It is forgotten then. */
  take(root: string): readonly string[] {
    const told = this.#byRoot.get(root);
    this.#byRoot.delete(root);
    return [...(told ?? [])];
  }

  #add(root: string, detail: string): void {
    const told = this.#byRoot.get(root) ?? new Set();
    this.#byRoot.set(root, told);
    if (told.size < MAX_TOLD) told.add(detail.slice(0, MAX_CHARS));
    if (this.#byRoot.size > MAX_RUNS) this.#byRoot.delete(this.#byRoot.keys().next().value ?? root);
  }
}
