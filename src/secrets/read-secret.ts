import { execFile } from "node:child_process";
import { constants } from "node:fs";
import { open } from "node:fs/promises";
import { join } from "node:path";

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

/** Finds which of some secrets is in a content that arrives in pieces, in any known encoding. */
export class SecretSearch {
  readonly #forms: readonly (readonly [name: string, form: Buffer])[];
  /** So many bytes at the end of a piece may be the beginning of a secret. */
  readonly #kept: number;
  #end = Buffer.alloc(0);

  constructor(secrets: readonly (readonly [name: string, value: string])[]) {
    this.#forms = secrets.flatMap(([name, value]) =>
      [...new Set(formsOf(value))].map((form) => [name, Buffer.from(form)] as const),
    );
    this.#kept = Math.max(0, ...this.#forms.map(([, form]) => form.length - 1));
  }

  /** How many bytes of the end of what was added may be the beginning of a secret. */
  get mayBegin(): number {
    return this.#kept;
  }

  /** The name of a secret that ends in this piece, or null. */
  add(piece: Buffer): string | null {
    const bytes = Buffer.concat([this.#end, piece]);
    this.#end = bytes.subarray(Math.max(0, bytes.length - this.#kept));
    return this.#forms.find(([, form]) => bytes.includes(form))?.[0] ?? null;
  }
}

/** A part of a base64 text that is shorter than this may be a part of any text. */
const MIN_INNER_CHARS = 8;

/** The secret in all the encodings in which programs repeat it. */
function formsOf(secret: string): string[] {
  const json = JSON.stringify(secret).slice(1, -1);
  return [secret, json, encodeURIComponent(secret), Buffer.from(secret).toString("base64"), ...innerBase64(secret)];
}

/**
 * What every base64 text has in common that encodes the secret inside of a longer text, such as `user:secret`: three
 * texts, since three bytes become four characters.
 */
function innerBase64(secret: string): string[] {
  const bytes = Buffer.from(secret);
  return [0, 1, 2].flatMap((before) => {
    const text = Buffer.concat([Buffer.alloc(before), bytes]).toString("base64");
    const inner = text.slice(Math.ceil((before * 8) / 6), Math.floor(((before + bytes.length) * 8) / 6));
    return inner.length < MIN_INNER_CHARS ? [] : [inner, inner.replaceAll("+", "-").replaceAll("/", "_")];
  });
}

/** The replacement for a secret. */
export const REDACTED = "[secret]";

/** Redacts a text that arrives in pieces. `add` returns what is certainly safe, `end` the rest. */
export interface RedactedPieces {
  add(piece: string): string;
  end(): string;
}

/**
 * Removes secrets from text that others see, such as an error of a server that repeats the key that it was sent. Only whole
 * values in known encodings are found: a hostile server can encode a secret in its own way, but it has the secret anyway.
 */
export class Redactor {
  readonly #forms: readonly string[];
  /** The most characters at the end of a piece that may be the beginning of a secret. */
  readonly #held: number;

  constructor(secrets: readonly string[]) {
    const forms = secrets.filter((secret) => secret !== "").flatMap(formsOf);
    // The longest first: a short form may be the beginning of a long one.
    this.#forms = [...new Set(forms)].toSorted((a, b) => b.length - a.length);
    this.#held = Math.max(0, ...this.#forms.map((form) => form.length - 1));
  }

  text(text: string): string {
    return this.#forms.reduce((clean, form) => clean.replaceAll(form, REDACTED), text);
  }

  /** The same value with all its texts and field names redacted. */
  value(value: unknown): unknown {
    if (typeof value === "string") return this.text(value);
    if (Array.isArray(value)) return value.map((item) => this.value(item));
    if (typeof value !== "object" || value === null || !isPlain(value)) return value;
    return Object.fromEntries(Object.entries(value).map(([name, part]) => [this.text(name), this.value(part)]));
  }

  /** The beginning of a text that continues, redacted: `held` is its end, which may be a part of a secret. */
  parted(text: string): { readonly free: string; readonly held: string } {
    const clean = this.text(text);
    const free = clean.length - this.#heldOf(clean);
    return { free: clean.slice(0, free), held: clean.slice(free) };
  }

  /** For a text that arrives in pieces: its end is held back until it cannot be part of a secret. */
  pieces(): RedactedPieces {
    let held = "";
    return {
      add: (piece) => {
        const parted = this.parted(held + piece);
        held = parted.held;
        return parted.free;
      },
      end: () => {
        const rest = held;
        held = "";
        return rest;
      },
    };
  }

  /** The number of characters at the end of a text that begin a secret. */
  #heldOf(text: string): number {
    for (let length = Math.min(this.#held, text.length); length > 0; length -= 1) {
      const end = text.slice(-length);
      if (this.#forms.some((form) => form.startsWith(end))) return length;
    }
    return 0;
  }
}

const NOTHING = new Redactor([]);

/** Bytes, dates and the like have no field names. */
function isPlain(value: object): boolean {
  const prototype: unknown = Object.getPrototypeOf(value);
  return prototype === Object.prototype || prototype === null;
}

export type SecretFile =
  | { readonly ok: true; readonly line: string }
  /** `fault` follows the name of the file, and repeats nothing of its content. */
  | { readonly ok: false; readonly fault: string };

/** What other users know is no secret, and what they can write is theirs. The owner's group may read it. */
const OF_OTHERS = 0o027;
const MAX_BYTES = 65_536;

/** The one line of a file. Blank space around it is not part of the secret. */
export async function readSecretFile(path: string, home: string | undefined): Promise<SecretFile> {
  const place = secretPlace(path, home);
  if (place === null) return { ok: false, fault: "is below a home that is not known" };
  const file = await open(place, constants.O_RDONLY | constants.O_NONBLOCK).catch(() => null);
  if (file === null) return { ok: false, fault: "cannot be opened" };
  await using _ = file;
  const found = await file.stat();
  if (!found.isFile()) return { ok: false, fault: "is not a regular file" };
  if ((found.mode & OF_OTHERS) !== 0)
    return { ok: false, fault: "can be read or written by other users; run `chmod o=,g-w` on it" };
  if (found.size > MAX_BYTES) return { ok: false, fault: `is larger than ${MAX_BYTES} bytes` };
  const text = (await file.readFile("utf8")).trim();
  return /[\r\n]/.test(text) ? { ok: false, fault: "has more than one line" } : { ok: true, line: text };
}

/** The absolute path of a secret's file; null if it is below a home that is not known. */
export function secretPlace(path: string, home: string | undefined): string | null {
  if (!path.startsWith("~/")) return path;
  return home?.startsWith("/") ? join(home, path.slice(2)) : null;
}

/** Corral's own environment. Only the command line, the servers and the library read it, and pass it on. */
export type Env = Readonly<Record<string, string | undefined>>;

/** Why a secret is not available. The message holds no part of the secret and no output of a program. */
export class SecretUnavailable extends Error {
  override readonly name = "SecretUnavailable";
}

/** The directories of the system's programs. It has no relative path, which could lead into a project. */
export const SYSTEM_PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin";

const TIMEOUT_MS = 30_000;
const MAX_SECRET_CHARS = 10_000;

/** Reads the secret for each use, so that Corral does not keep it. Rejects with {@link SecretUnavailable}. */
export async function readSecret(source: SecretSource, env: Env, signal: AbortSignal): Promise<string> {
  if (source.kind === "env") {
    const secret = env[source.name] ?? "";
    if (!isSecret(secret))
      throw new SecretUnavailable(
        `the environment variable ${source.name} is not set, or is not a password, token or key`,
      );
    return secret;
  }
  if (source.kind === "file") {
    const read = await readSecretFile(source.path, env.HOME);
    if (!read.ok) throw new SecretUnavailable(`the file ${source.path} ${read.fault}`);
    if (!isSecret(read.line)) throw new SecretUnavailable(`the file ${source.path} has no password, token or key`);
    return read.line;
  }
  const { program, args } = source;
  // The output of a failed program may hold a part of a secret, so only its status is reported.
  const printed = await printedBy(program, args, env, signal).catch((error: NodeJS.ErrnoException) => {
    signal.throwIfAborted();
    throw new SecretUnavailable(`the program ${program}, which prints it, failed (${error.code ?? "killed"})`);
  });
  const [secret = ""] = printed.split(/\r?\n/);
  if (!isSecret(secret)) throw new SecretUnavailable(`the program ${program} printed no password, token or key`);
  return secret;
}

/** A line break could inject a second header, or a second answer to git. */
function isSecret(text: string): boolean {
  return text !== "" && text.length <= MAX_SECRET_CHARS && !/\p{Cc}/u.test(text);
}

function printedBy(program: string, args: readonly string[], env: Env, signal: AbortSignal): Promise<string> {
  const options = { cwd: "/", env: { ...env, PATH: SYSTEM_PATH }, timeout: TIMEOUT_MS, maxBuffer: 65_536, signal };
  return new Promise((resolve, reject) => {
    const child = execFile(program, [...args], options, (error, stdout) =>
      error === null ? resolve(stdout) : reject(error),
    );
    child.stdin?.on("error", () => {}).end();
  });
}

/** The source of a secret: a variable of Corral's environment, the one line of a file, or the first line that a program prints. */
export type SecretSource =
  | { readonly kind: "env"; readonly name: string }
  /** Absolute, or below the home of Corral's user: `~/…`. */
  | { readonly kind: "file"; readonly path: string }
  | { readonly kind: "command"; readonly program: string; readonly args: readonly string[] };

/** The value of a secret by its name. Rejects with `SecretUnavailable`, whose message holds no part of it. */
export type SecretOf = (name: string, signal: AbortSignal) => Promise<string>;

/** Reads each secret when it is used, so that Corral does not keep it. `env`: Corral's own environment. */
export function namedSecrets(sources: ReadonlyMap<string, SecretSource>, env: Env): SecretOf {
  return async (name, signal) => {
    const source = sources.get(name);
    if (source === undefined) throw new SecretUnavailable(`there is no secret \`${name}\` in corral.yaml`);
    const secret = (await readSecret(source, env, signal)).trim();
    // Only this can be the value of a header, and a server repeats exactly what it was sent.
    if (!/^[\x20-\x7e]+$/.test(secret))
      throw new SecretUnavailable(`the secret \`${name}\` has characters that an HTTP header cannot contain`);
    return secret;
  };
}
