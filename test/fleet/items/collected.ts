import type { SkippedEntry } from "../../../src/fleet/items/matching-files.ts";
import { type ItemSource, type ManifestFormat, readItems } from "../../../src/fleet/items/read-items.ts";
import type { ManifestItem } from "../../../src/fleet/model/item.ts";

export interface Collected {
  readonly items: readonly ManifestItem[];
  readonly leftOut: readonly SkippedEntry[];
  /** What ended the reading; null where it came to its end. */
  readonly fault: string | null;
}

/** Everything that a small source gives, also where it then fails. */
export async function collected(source: ItemSource, cwd = "/", allowEmpty = false): Promise<Collected> {
  const items: ManifestItem[] = [];
  const leftOut: SkippedEntry[] = [];
  try {
    const { signal } = new AbortController();
    const reading = { cwd, signal, leftOut: (what: SkippedEntry) => leftOut.push(what), allowEmpty };
    for await (const item of readItems(source, reading)) items.push(item);
    return { items, leftOut, fault: null };
  } catch (error) {
    return { items, leftOut, fault: (error as Error).message };
  }
}

/** A text as a stream in pieces of `size` bytes, which fall where they fall. */
export function streamed(text: string | Buffer, format: ManifestFormat, size = 7): ItemSource {
  const bytes = Buffer.from(text);
  async function* pieces() {
    for (let at = 0; at < bytes.length; at += size) yield bytes.subarray(at, at + size);
  }
  return { kind: "stream", stream: pieces(), name: "in", format };
}
