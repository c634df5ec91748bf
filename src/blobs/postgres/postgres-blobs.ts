import { hasCode } from "../../platform/errno.ts";
import {
  type Blob,
  BlobRefused,
  type BlobStore,
  type Content,
  checked,
  type Digest,
  type Sweep,
  type Swept,
} from "../model/blob.ts";

/** A database that takes statements, as that of the queue. Each can be executed twice, so it may be tried again. */
export interface Statements {
  query<Row>(text: string, values?: readonly unknown[]): Promise<Row[]>;
}

/** A blob is in memory as a whole while it is stored. */
const MAX_BYTES = 50 * 1024 ** 2;
const PIECE_BYTES = 4 * 1024 ** 2;
/** Digests in one query. */
const BATCH = 1000;
const RENEWED_AFTER = "1 minute";

/**
 * The table of blobs. The database itself refuses content that does not have the digest. What is stored is not compressed, so
 * that a part of it can be read without the whole. Machines need SELECT, INSERT, and UPDATE of `used_at`.
 */
export const BLOB_TABLE = `
CREATE TABLE IF NOT EXISTS corral.blobs (
  digest text PRIMARY KEY CHECK (digest ~ '^[0-9a-f]{64}$'),
  content bytea NOT NULL CHECK (octet_length(content) <= ${MAX_BYTES}),
  used_at timestamptz NOT NULL DEFAULT now(),
  CHECK (digest = encode(sha256(content), 'hex'))
);
ALTER TABLE corral.blobs ALTER COLUMN content SET STORAGE EXTERNAL;
CREATE INDEX IF NOT EXISTS blobs_used_at ON corral.blobs (used_at);
`;

/** Errors of two processes that make the table at the same time: duplicate_schema, duplicate_table, unique_violation. */
const MADE_MEANWHILE = ["42P06", "42P07", "23505"];

/** Makes the table if it is missing: a machine's role need not be allowed to. */
export async function openPostgresBlobs(database: Statements): Promise<PostgresBlobs> {
  const [found] = await database.query<{ known: boolean }>("SELECT to_regclass('corral.blobs') IS NOT NULL AS known");
  if (found?.known !== true) {
    for (const statement of `CREATE SCHEMA IF NOT EXISTS corral;${BLOB_TABLE}`
      .split(/(?<=;)\n/)
      .filter((text) => text.trim() !== ""))
      await database.query(statement).catch((error: unknown) => {
        if (!hasCode(error, ...MADE_MEANWHILE)) throw error;
      });
  }
  return new PostgresBlobs(database);
}

/** Blobs in a table of PostgreSQL: {@link BLOB_TABLE}. */
export class PostgresBlobs implements BlobStore {
  readonly #database: Statements;
  readonly maxBytes = MAX_BYTES;

  constructor(database: Statements) {
    this.#database = database;
  }

  async has(digests: readonly Digest[]): Promise<ReadonlySet<Digest>> {
    const found = new Set<Digest>();
    for (let at = 0; at < digests.length; at += BATCH) {
      const batch = digests.slice(at, at + BATCH);
      await this.#rows(
        `UPDATE corral.blobs SET used_at = now() WHERE digest = ANY($1) AND used_at < now() - interval '${RENEWED_AFTER}'`,
        [batch],
      );
      for (const { digest } of await this.#rows("SELECT digest FROM corral.blobs WHERE digest = ANY($1)", [batch]))
        found.add(digest as Digest);
    }
    return found;
  }

  async put(blob: Blob, content: Content, signal?: AbortSignal): Promise<void> {
    const { digest, bytes } = blob;
    if (bytes > MAX_BYTES) throw new BlobRefused("too_large", digest, tooLarge(bytes, MAX_BYTES));
    const pieces: Uint8Array[] = [];
    for await (const piece of checked(blob, content, signal)) pieces.push(Uint8Array.from(piece));
    await this.#rows(
      "INSERT INTO corral.blobs (digest, content) VALUES ($1, $2) ON CONFLICT (digest) DO UPDATE SET used_at = now()",
      [digest, Buffer.concat(pieces)],
    );
  }

  /** Each statement is committed. */
  async flush(): Promise<void> {}

  async *get(digest: Digest, maxBytes: number, signal?: AbortSignal): AsyncGenerator<Uint8Array, void, undefined> {
    const [found] = await this.#rows("SELECT octet_length(content) AS bytes FROM corral.blobs WHERE digest = $1", [
      digest,
    ]);
    if (found === undefined) throw new BlobRefused("missing", digest, "the blob store does not have it");
    const bytes = Number(found.bytes);
    if (bytes > maxBytes) throw new BlobRefused("too_large", digest, tooLarge(bytes, maxBytes));
    yield* checked({ digest, bytes }, this.#pieces(digest, bytes), signal);
  }

  async sweep({ isKept, olderThanMs, signal }: Sweep): Promise<Swept> {
    let [removed, bytes, after] = [0, 0, ""];
    for (;;) {
      signal?.throwIfAborted();
      const old = await this.#rows(
        `SELECT digest FROM corral.blobs WHERE digest > $1 AND used_at <= now() - $2 * interval '1 millisecond'
           ORDER BY digest LIMIT ${BATCH}`,
        [after, olderThanMs],
      );
      const digests = old.map(({ digest }) => digest as Digest);
      const gone = await this.#rows(
        `DELETE FROM corral.blobs WHERE digest = ANY($1) AND used_at <= now() - $2 * interval '1 millisecond'
           RETURNING octet_length(content) AS bytes`,
        [digests.filter((digest) => !isKept(digest)), olderThanMs],
      );
      removed += gone.length;
      bytes += gone.reduce((sum, one) => sum + Number(one.bytes), 0);
      after = digests.at(-1) ?? "";
      if (digests.length < BATCH) return { removed, bytes };
    }
  }

  async *#pieces(digest: Digest, bytes: number): AsyncGenerator<Uint8Array, void, undefined> {
    for (let at = 0; at < bytes; at += PIECE_BYTES) {
      const [found] = await this.#rows(
        "SELECT substring(content FROM $2::int FOR $3::int) AS piece FROM corral.blobs WHERE digest = $1",
        [digest, at + 1, PIECE_BYTES],
      );
      if (found === undefined) throw new BlobRefused("missing", digest, "it was removed while it was read");
      yield found.piece as Uint8Array;
    }
  }

  async #rows(text: string, values: readonly unknown[]): Promise<readonly Record<string, unknown>[]> {
    return await this.#database.query(text, values);
  }
}

function tooLarge(bytes: number, most: number): string {
  return `it has ${bytes} bytes, and at most ${most} are allowed`;
}
