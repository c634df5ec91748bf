import { Redactor } from "../../secrets/redactor.ts";
import { BOUNDS } from "../model/bounds.ts";

/** Of a secret that changes, such as a token of an hour, so many values are still removed from answers. */
const MAX_VALUES = 16;

/** The values of secrets, each kept in memory for a moment. */
export class SecretValues {
  readonly #secretOf: (name: string) => Promise<string>;
  readonly #fresh = new Map<string, { readonly value: Promise<string>; readonly untilMs: number }>();
  readonly #used = new Map<string, string[]>();
  #redactor: Redactor | null = null;

  constructor(secretOf: (name: string) => Promise<string>) {
    this.#secretOf = secretOf;
  }

  /** As bytes of a header, in Latin-1. Rejects as the source does. */
  async value(name: string): Promise<string> {
    const known = this.#fresh.get(name);
    if (known !== undefined && known.untilMs > performance.now()) return await known.value;
    const value = this.#secretOf(name).then((secret) => this.#use(name, secret));
    this.#fresh.set(name, { value, untilMs: performance.now() + BOUNDS.secretMs });
    value.catch(() => this.#fresh.delete(name));
    return await value;
  }

  /** Removes every value that was ever sent; null if none was. Texts are bytes in Latin-1. */
  get redactor(): Redactor | null {
    return this.#redactor;
  }

  #use(name: string, secret: string): string {
    const values = this.#used.get(name) ?? [];
    if (!values.includes(secret)) {
      this.#used.set(name, [...values, secret].slice(-MAX_VALUES));
      this.#redactor = new Redactor([...this.#used.values()].flat().flatMap(partsOf));
    }
    return asBytes(secret);
  }
}

function asBytes(text: string): string {
  return Buffer.from(text).toString("latin1");
}

const MIN_PART = 6;

/** A value of `authorization` has a scheme in front, and servers repeat only what is behind it. */
function partsOf(secret: string): string[] {
  const [, scheme = "", credentials = ""] = /^([A-Za-z][A-Za-z0-9-]*) +(\S+)$/.exec(secret) ?? [];
  const user = scheme.toLowerCase() === "basic" ? Buffer.from(credentials, "base64").toString() : "";
  const password = user.slice(user.indexOf(":") + 1);
  const parts = [credentials, user, password].filter((part) => part.length >= MIN_PART);
  return [secret, ...parts].flatMap((part) => [part, asBytes(part)]);
}
