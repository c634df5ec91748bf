import type { ItemStreams } from "../model/stored-item.ts";
import { encodedStreams, MAX_FLEET_BYTES } from "../stored/stream-encoding.ts";
import type { Statements } from "./connection.ts";

/** How much the streams of one fleet may still take. */
export class StreamBudget {
  #bytes: number;

  private constructor(bytes: number) {
    this.#bytes = bytes;
  }

  static async of(db: Statements, fleet: number): Promise<StreamBudget> {
    const [row] = await db.query<{ bytes: number }>(
      `SELECT coalesce(sum(coalesce(length(stdout), 0) + coalesce(length(stderr), 0)), 0)::bigint AS bytes
       FROM corral.streams WHERE fleet = $1`,
      [fleet],
    );
    return new StreamBudget(row?.bytes ?? 0);
  }

  /** `output`: of the result, if it is whole. */
  encoded(streams: ItemStreams, output: unknown): readonly [Buffer | null, Buffer | null] {
    const [out, err] = encodedStreams(streams, output, this.#bytes >= MAX_FLEET_BYTES);
    this.#bytes += (out?.length ?? 0) + (err?.length ?? 0);
    return [out, err];
  }
}
