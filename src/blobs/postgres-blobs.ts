import { filledIn, textBeside } from "../platform/text-beside.ts";
import {
  type Blob,
  BlobRefused,
  type BlobStore,
  type Content,
  type Digest,
  type Sweep,
  type Swept,
  verifiedContent,
} from "./blob.ts";

/** A database that takes statements, as that of the queue. Each can be executed twice, so it may be tried again. */
export interface BlobDatabase {
  query<Row>(text: string, values?: readonly unknown[]): Promise<Row[]>;
}

/** A blob is in memory as a whole while it is stored. */
const MAX_BYTES = 50 * 1024 ** 2;
const PIECE_BYTES = 4 * 1024 ** 2;
/** Digests in one query. */
const BATCH = 1000;

/**
 * The table of blobs. The database itself refuses content that does not have the digest. What is stored is not compressed, so that a
 * part of it can be read without the whole. Machines have no right to the table. By the functions they get only what they can name, and
 * the time of use is never theirs to say; it is not that of their transaction, which may be old.
 */
export const BLOB_TABLE = `\n${filledIn(textBeside(import.meta.url, "blobs.sql"), { MAX_BYTES, BATCH, PIECE_BYTES })}`;

/** Blobs in a table of PostgreSQL: {@link BLOB_TABLE}. */
export class PostgresBlobs implements BlobStore {
  readonly #database: BlobDatabase;
  readonly maxBytes = MAX_BYTES;

  constructor(database: BlobDatabase) {
    this.#database = database;
  }

  async has(digests: readonly Digest[]): Promise<ReadonlySet<Digest>> {
    const found = new Set<Digest>();
    for (let at = 0; at < digests.length; at += BATCH) {
      const batch = digests.slice(at, at + BATCH);
      for (const { digest } of await this.#rows("SELECT corral.blobs_has($1) AS digest", [batch]))
        found.add(digest as Digest);
    }
    return found;
  }

  async put(blob: Blob, content: Content, signal?: AbortSignal): Promise<void> {
    const { digest, bytes } = blob;
    if (bytes > MAX_BYTES) throw new BlobRefused("too_large", digest, tooLarge(bytes, MAX_BYTES));
    const pieces: Uint8Array[] = [];
    for await (const piece of verifiedContent(blob, content, signal)) pieces.push(Uint8Array.from(piece));
    await this.#rows("SELECT corral.blob_put($1, $2)", [digest, Buffer.concat(pieces)]);
  }

  /** Each statement is committed. */
  async flush(): Promise<void> {}

  async *get(digest: Digest, maxBytes: number, signal?: AbortSignal): AsyncGenerator<Uint8Array, void, undefined> {
    const first = await this.#piece(digest, 0, Math.min(PIECE_BYTES, maxBytes));
    if (first === null) throw new BlobRefused("missing", digest, "the blob store does not have it");
    const { bytes } = first;
    if (bytes > maxBytes) throw new BlobRefused("too_large", digest, tooLarge(bytes, maxBytes));
    yield* verifiedContent({ digest, bytes }, this.#pieces(digest, first), signal);
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

  async *#pieces(digest: Digest, first: Piece): AsyncGenerator<Uint8Array, void, undefined> {
    if (first.bytes > 0) yield first.piece;
    for (let at = PIECE_BYTES; at < first.bytes; at += PIECE_BYTES) {
      const next = await this.#piece(digest, at, PIECE_BYTES);
      if (next === null) throw new BlobRefused("missing", digest, "it was removed while it was read");
      yield next.piece;
    }
  }

  async #piece(digest: Digest, after: number, most: number): Promise<Piece | null> {
    const [found] = await this.#database.query<Piece>("SELECT * FROM corral.blob_piece($1, $2, $3)", [
      digest,
      after,
      most,
    ]);
    if (found === undefined) return null;
    // The server's word: another size than a number would not be compared with any.
    if (Number.isSafeInteger(found.bytes) && found.piece instanceof Uint8Array && found.piece.length <= most)
      return found;
    throw new BlobRefused("mismatch", digest, "the database answers with what is no piece of a blob");
  }

  async #rows(text: string, values: readonly unknown[]): Promise<readonly Record<string, unknown>[]> {
    return await this.#database.query(text, values);
  }
}

/** A part of a blob, with the size of all of it. */
interface Piece {
  readonly bytes: number;
  readonly piece: Uint8Array;
}

function tooLarge(bytes: number, most: number): string {
  return `it has ${bytes} bytes, and at most ${most} are allowed`;
}
