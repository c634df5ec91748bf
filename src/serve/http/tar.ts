import { once } from "node:events";
import tar from "tar-stream";

/** A regular file or a directory of an archive. */
interface TarEntry {
  readonly path: string;
  readonly type: "file" | "directory";
  readonly bytes: number;
  readonly mode: number;
  readonly content: AsyncIterable<Buffer>;
}

/** Packs entries as they are read. Paths are relative and none leads up; users, groups and times are left out. */
export async function* tarOf(entries: AsyncIterable<TarEntry>): AsyncGenerator<Buffer, void, undefined> {
  const pack = tar.pack();
  const packing = fill(pack, entries);
  // It is reported by the end of the pack, at the latest.
  packing.catch((error: Error) => pack.destroy(error));
  try {
    for await (const piece of pack) yield piece as Buffer;
    await packing;
  } finally {
    pack.destroy();
    await packing.catch(() => {});
  }
}

async function fill(pack: tar.Pack, entries: AsyncIterable<TarEntry>): Promise<void> {
  for await (const { path, type, bytes, mode, content } of entries) {
    const name = path
      .split("/")
      .filter((part) => part !== "" && part !== "." && part !== "..")
      .join("/");
    // Not even a setuid bit; what was executable stays it.
    const about = { name, mode: mode & 0o755, mtime: new Date(0), type, size: bytes };
    if (type === "directory") {
      pack.entry(about);
      continue;
    }
    const entry = pack.entry(about);
    for await (const piece of content) {
      if (pack.destroyed) return;
      if (!entry.write(piece)) await Promise.race([once(entry, "drain"), once(entry, "close"), once(pack, "close")]);
    }
    entry.end("");
  }
  pack.finalize();
}
