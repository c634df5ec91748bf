/** An opened file, with the size that it had when it was opened. Bytes appended later are not part of it. */
export interface ByteSource {
  readonly size: number;
  /** Up to `length` bytes from `position`; fewer only at the end of the file, or if it was truncated. */
  read(position: number, length: number): Promise<Buffer>;
  /** True if the file changed since it was opened. */
  changed(): boolean;
}

/** The same source with its first bytes in memory, so that a small file is read once. */
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

/** The whole content. The caller has checked that it is small. */
export async function readAll(source: ByteSource): Promise<Buffer> {
  return source.read(0, source.size);
}
