import { Redactor } from "./redactor.ts";
import { SecretSearch } from "./secret-search.ts";

type Secrets = ReadonlyMap<string, string>;

/**
 * The secrets that are inside of cells now, by the root run of their tree: what such a tree prints, reports or stores is
 * shown to others without them. Corral keeps their values for this, until the tree has ended.
 */
export class Masking {
  readonly #byRoot = new Map<string, { readonly secrets: Secrets; readonly redactor: Redactor }>();

  /** From now on these are hidden in everything that comes from the tree. */
  hold(root: string, secrets: Secrets): void {
    if (secrets.size === 0) return;
    const before = this.#byRoot.get(root)?.secrets ?? new Map<string, string>();
    // A secret that was read twice may have two values.
    const values = new Map([...before, ...[...secrets].map(([name, value]) => [`${name}\n${value}`, value] as const)]);
    if (values.size > before.size)
      this.#byRoot.set(root, { secrets: values, redactor: new Redactor([...values.values()]) });
  }

  /** The tree has ended. */
  release(root: string): void {
    this.#byRoot.delete(root);
  }

  /** Null: no cell of the tree has a secret. */
  of(root: string): Redactor | null {
    return this.#byRoot.get(root)?.redactor ?? null;
  }

  /** The same value without the secrets of the tree. */
  value<Value>(root: string, value: Value): Value {
    const redactor = this.of(root);
    return redactor === null ? value : (redactor.value(value) as Value);
  }

  text(root: string, text: string): string {
    return this.of(root)?.text(text) ?? text;
  }

  /** Looks for the secrets of the tree by their names; null if there are none. */
  search(root: string): (() => SecretSearch) | null {
    const held = this.#byRoot.get(root);
    if (held === undefined) return null;
    const named = [...held.secrets].map(([key, value]) => [key.split("\n")[0] ?? "", value] as const);
    return () => new SecretSearch(named);
  }
}

/** One stream of bytes from a tree of runs, without its secrets, also those that are split between two pieces. */
export class MaskedBytes {
  readonly #now: () => Redactor | null;
  #held = "";

  /** `now`: what is hidden now; a worker that the tree calls may bring more. */
  constructor(now: () => Redactor | null) {
    this.#now = now;
  }

  add(chunk: Buffer): Buffer {
    const redactor = this.#now();
    if (redactor === null && this.#held === "") return chunk;
    // One character for each byte: what is no text stays as it is.
    const { free, held } = (redactor ?? NOTHING).parted(this.#held + chunk.toString("latin1"));
    this.#held = held;
    return Buffer.from(free, "latin1");
  }

  /** What was held back. */
  end(): Buffer {
    const rest = Buffer.from(this.#held, "latin1");
    this.#held = "";
    return rest;
  }
}

const NOTHING = new Redactor([]);
