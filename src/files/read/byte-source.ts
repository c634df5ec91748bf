/** An opened file as its reader sees it: its size when it was opened, whatever is appended meanwhile. */
export interface ByteSource {
  readonly size: number;
  /** Up to `length` bytes from `position`; fewer only at the end of the file, or where it was cut off meanwhile. */
  read(position: number, length: number): Promise<Buffer>;
  /** True where the file is no longer what it was when it was opened. */
  changed(): boolean;
}

/** The same source with its first bytes at hand, so that a small file is read once. */
export function withHead(source: ByteSource, head: Buffer): ByteSource {
  return {
    size: source.size,
    changed: () => source.changed(),
    read: async (position, length) => {
      const end = Math.min(position + length, source.size);
      return end <= head.length ? head.subarray(position, Math.max(position, end)) : source.read(position, length);
    },
  };
}

/** All of it, for what is small by a limit that the caller has checked. */
export async function readAll(source: ByteSource): Promise<Buffer> {
  return source.read(0, source.size);
}
