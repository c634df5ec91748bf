import type { ItemRequest } from "../model/item.ts";
import type { LoadProblem } from "../model/store.ts";

const MAX_ITEMS = 10_000_000;
const MAX_KEY_BYTES = 4096;
/** A line of a manifest has at most 1 MiB, but templates may repeat its values. */
const MAX_REQUEST_BYTES = 4 * 1024 ** 2;
const BATCH_ITEMS = 500;
const BATCH_BYTES = 4 * 1024 ** 2;

/** A request with its JSON. */
export interface RequestRow {
  readonly request: ItemRequest;
  readonly json: string;
}

type Batch =
  | { readonly ok: true; readonly rows: readonly RequestRow[] }
  | { readonly ok: false; readonly problem: LoadProblem<never> };

/** Items in batches that are small enough for one transaction; the last one may be empty. A problem is the last. */
export async function* requestBatches(
  items: AsyncIterable<ItemRequest>,
  signal: AbortSignal | undefined,
): AsyncGenerator<Batch, void, undefined> {
  let rows: RequestRow[] = [];
  let bytes = 0;
  let total = 0;
  for await (const request of items) {
    const row = { request, json: JSON.stringify(request) };
    const problem = unfit(row) ?? (total >= MAX_ITEMS ? { code: "too_many" as const, maxItems: MAX_ITEMS } : null);
    if (problem !== null) return yield { ok: false, problem };
    rows.push(row);
    total += 1;
    bytes += row.json.length;
    if (rows.length < BATCH_ITEMS && bytes < BATCH_BYTES) continue;
    signal?.throwIfAborted();
    yield { ok: true, rows };
    [rows, bytes] = [[], 0];
  }
  signal?.throwIfAborted();
  yield { ok: true, rows };
}

function unfit({ request: { key, place }, json }: RequestRow): LoadProblem<never> | null {
  const tooLarge = (bytes: number, maxBytes: number): LoadProblem<never> | null =>
    bytes > maxBytes ? { code: "too_large", place, bytes, maxBytes } : null;
  return tooLarge(Buffer.byteLength(key), MAX_KEY_BYTES) ?? tooLarge(Buffer.byteLength(json), MAX_REQUEST_BYTES);
}

/** `first`: the request that has the key already, as JSON. */
export function duplicateKey(
  first: string | undefined,
  { key, place }: Pick<ItemRequest, "key" | "place">,
): LoadProblem<never> {
  const earlier = JSON.parse(first ?? "{}") as Partial<ItemRequest>;
  return { code: "duplicate_key", key, places: [earlier.place ?? "", place] };
}

export function collided<Collisions>(collisions: Collisions | null): LoadProblem<Collisions> | null {
  return collisions === null ? null : { code: "collisions", collisions };
}
