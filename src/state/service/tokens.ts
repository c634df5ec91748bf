import { createHash, randomBytes, timingSafeEqual } from "node:crypto";
import { statSync } from "node:fs";
import { readFile } from "node:fs/promises";
import { join } from "node:path";
import { nullFor } from "../../platform/errno.ts";
import { writeAtomically } from "../../platform/write-file.ts";
import { holdFile } from "../file-lock.ts";
import { lockOwner } from "../owner.ts";
import { makeClosedDir, makeStateDir, statePaths } from "../state-dir.ts";

/** A token of the service, without its value. */
export interface Token {
  /** 8 hex digits. */
  readonly id: string;
  readonly name: string;
  readonly roles: readonly Role[];
  /** ISO 8601. */
  readonly createdAt: string;
}

interface Stored extends Token {
  readonly sha256: string;
}

export class TokenFileError extends Error {
  override readonly name = "TokenFileError";
}

const MAX_TOKENS = 1000;
const MAX_FILE_BYTES = 1024 ** 2;
const MAX_NAME_CHARS = 100;

/**
 * The bearer tokens of a state directory. Only their SHA-256 is stored: a token has 256 random bits, so its hash cannot be
 * searched. Every process sees a change at its next look.
 */
export class Tokens {
  readonly #stateDir: string;
  readonly #dir: string;
  readonly #file: string;
  #seen = "";
  #stored: readonly Stored[] = [];

  constructor(stateDir: string) {
    this.#stateDir = stateDir;
    this.#dir = statePaths(stateDir).service;
    this.#file = join(this.#dir, "tokens.json");
  }

  async list(): Promise<Token[]> {
    return (await this.#read()).map(({ sha256: _, ...token }) => token);
  }

  /** Of all tokens that are valid now; read again only if they have changed. */
  async ids(): Promise<ReadonlySet<string>> {
    return new Set((await this.#current()).map(({ id }) => id));
  }

  /** `value` is not stored anywhere. @throws RangeError for a name or roles that cannot be, or for too many tokens */
  async create(name: string, roles: readonly Role[]): Promise<{ readonly token: Token; readonly value: string }> {
    if (name.length > MAX_NAME_CHARS || !/^[\w.@ ][\w.@ -]*$/.test(name))
      throw new RangeError(
        `a name has 1 to ${MAX_NAME_CHARS} letters, digits, spaces or . _ @ -, and does not begin with -`,
      );
    if (roles.length === 0) throw new RangeError("a token needs a role");
    return await this.#add(name, roles, `corral_${randomBytes(32).toString("base64url")}`);
  }

  /** Makes a token with this value, in place of that of the same name. @throws RangeError for a value that is not as long as one of Corral's own */
  async adopt(name: string, roles: readonly Role[], value: string): Promise<void> {
    if (!/^corral_[\w-]{43,200}$/.test(value))
      throw new RangeError("a token is `corral_` and at least 43 letters, digits, _ or -");
    if ((await this.find(value))?.name !== name) await this.#add(name, roles, value, (one) => one.name !== name);
  }

  async #add(
    name: string,
    roles: readonly Role[],
    value: string,
    keeps: (one: Token) => boolean = () => true,
  ): Promise<{ readonly token: Token; readonly value: string }> {
    const id = randomBytes(4).toString("hex");
    const token: Token = { id, name, roles: [...new Set(roles)], createdAt: new Date().toISOString() };
    await this.#change((stored) => {
      const kept = stored.filter(keeps);
      if (kept.length >= MAX_TOKENS) throw new RangeError(`there are ${MAX_TOKENS} tokens; remove some first`);
      return [...kept, { ...token, sha256: hashOf(value).toString("hex") }];
    });
    return { token, value };
  }

  /** False if there is no such token. */
  async remove(id: string): Promise<boolean> {
    let isThere = false;
    await this.#change((stored) => {
      isThere = stored.some((token) => token.id === id);
      return stored.filter((token) => token.id !== id);
    });
    return isThere;
  }

  /** The token with this value; null if there is none. All are compared, so the time reveals nothing about any of them. */
  async find(value: string): Promise<Token | null> {
    const hash = hashOf(value);
    let found: Stored | null = null;
    for (const token of await this.#current())
      if (timingSafeEqual(hash, Buffer.from(token.sha256, "hex"))) found = token;
    if (found === null) return null;
    const { sha256: _, ...token } = found;
    return token;
  }

  /** Read again only if the file is another one. */
  async #current(): Promise<readonly Stored[]> {
    const found = statSync(this.#file, { bigint: true, throwIfNoEntry: false });
    const mark = found === undefined ? "none" : `${found.ino} ${found.size} ${found.mtimeNs}`;
    if (mark !== this.#seen) {
      this.#stored = await this.#read();
      this.#seen = mark;
    }
    return this.#stored;
  }

  async #read(): Promise<readonly Stored[]> {
    const text = await readFile(this.#file, "utf8").catch(nullFor("ENOENT"));
    if (text === null) return [];
    const stored = text.length > MAX_FILE_BYTES ? null : storedIn(text);
    // Absence denies: if the file is unreadable, no token is valid.
    if (stored === null)
      throw new TokenFileError(
        `${this.#file} cannot be read. Remove it, and make new tokens with \`corral serve token create\``,
      );
    return stored;
  }

  async #change(act: (stored: readonly Stored[]) => readonly Stored[]): Promise<void> {
    await makeStateDir(this.#stateDir);
    await makeClosedDir(this.#dir);
    const patience = { waitMs: 10_000, longestPauseMs: 20 };
    await using _ = await holdFile(join(this.#dir, "tokens.lock"), lockOwner(), patience);
    await writeAtomically(this.#file, `${JSON.stringify(act(await this.#read()))}\n`, { durable: true });
  }
}

function hashOf(value: string): Buffer {
  return createHash("sha256").update(value).digest();
}

function storedIn(text: string): readonly Stored[] | null {
  try {
    const list = JSON.parse(text) as unknown;
    return Array.isArray(list) && list.every(isStored) ? list : null;
  } catch {
    return null;
  }
}

function isStored(raw: unknown): raw is Stored {
  const { id, name, roles, createdAt, sha256 } = (raw ?? {}) as Partial<Stored>;
  const isText = (value: unknown): boolean => typeof value === "string";
  return (
    [id, name, createdAt].every(isText) &&
    /^[0-9a-f]{64}$/.test(sha256 ?? "") &&
    Array.isArray(roles) &&
    roles.every((role) => ROLES.includes(role))
  );
}

/** What a token permits. Each but `metrics` includes `read`, which includes `metrics`; `admin` includes all. */
export const ROLES = ["metrics", "read", "decide", "run", "admin"] as const;
export type Role = (typeof ROLES)[number];
