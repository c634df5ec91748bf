import type { ItemStreams } from "../model/stored-item.ts";
import { encodedStreams, MAX_FLEET_BYTES } from "../stored/stream-encoding.ts";
import type { Database } from "./database.ts";

/** The streams of one fleet, within its budget. */
export class StreamStore {
  readonly #db: Database;
  readonly #fleet: number;
  #bytes: number | null = null;

  constructor(db: Database, fleet: number) {
    this.#db = db;
    this.#fleet = fleet;
  }

  /** Encoded outside of the transaction. `output`: of the result, if it is whole. */
  encoded(streams: ItemStreams, output: unknown): readonly [Buffer | null, Buffer | null] {
    const [out, err] = encodedStreams(streams, output, this.#used() >= MAX_FLEET_BYTES);
    this.#bytes = this.#used() + (out?.length ?? 0) + (err?.length ?? 0);
    return [out, err];
  }

  /** In place of what an earlier attempt printed. */
  keep(item: number, [stdout, stderr]: readonly [Uint8Array | null, Uint8Array | null], isFirst: boolean): void {
    if (stdout === null && stderr === null) {
      if (!isFirst) this.#db.run("DELETE FROM streams WHERE item = ?", item);
    } else this.#db.run("INSERT OR REPLACE INTO streams (item, stdout, stderr) VALUES (?, ?, ?)", item, stdout, stderr);
  }

  #used(): number {
    this.#bytes ??=
      this.#db.get<{ bytes: number }>(
        `SELECT coalesce(sum(coalesce(length(stdout), 0) + coalesce(length(stderr), 0)), 0) AS bytes
         FROM items JOIN streams ON streams.item = items.id WHERE fleet = ?`,
        this.#fleet,
      )?.bytes ?? 0;
    return this.#bytes;
  }
}
