import type { Readable, Writable } from "node:stream";
import { extract, type Header } from "tar-stream";
import { written } from "./byte-streams.ts";

export type TarEntry = AsyncIterable<Uint8Array> & { readonly header: Header } & Pick<Readable, "resume">;

/** The entries of a tar archive, each to be read or resumed before the next. Throws what the content throws, or that it is no whole archive. */
export async function* tarEntries(content: AsyncIterable<Uint8Array>): AsyncGenerator<TarEntry> {
  const reader = extract();
  const writer = reader as unknown as Writable;
  const feed = async (): Promise<void> => {
    try {
      for await (const piece of content) {
        if (reader.destroyed) return;
        await written(writer, piece);
      }
      writer.end();
    } catch (error) {
      reader.destroy(error as Error);
    }
  };
  const fed = feed();
  try {
    for await (const entry of reader) yield entry as unknown as TarEntry;
    await fed;
  } finally {
    reader.destroy();
  }
}
