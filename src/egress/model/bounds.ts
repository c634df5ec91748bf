/** Bounds that no declaration changes. docs/network.md has them as a table. */
export const BOUNDS = {
  /** Connections of one cell at once, if its network says nothing. */
  connections: 64,
  /** A name may lead to more addresses; the further ones are not tried. */
  addresses: 8,
  resolveTimeoutMs: 10_000,
  dialTimeoutMs: 10_000,
  /** The next address is tried beside one that did not answer within this time. */
  nextAddressMs: 250,
  /** What a client may send before Corral has judged it. */
  firstBytes: 65_536,
  /** The first line of a text protocol, which is judged as a whole. */
  firstLineBytes: 16_384,
  /** From the first byte of a client until it can be judged. */
  firstBytesTimeoutMs: 10_000,
  /** How long a tunnel waits for its client before it dials, as the server may speak first. */
  clientFirstMs: 25,
  /** What is kept for a side that reads slowly, before the other side is no longer read. */
  bufferedBytes: 262_144,
  /** What is read from a host at once in a tunnel: more if the host is quick. */
  pieceBytes: { least: 16_384, most: 262_144 },
  /** A tunnel without a byte in either direction. */
  tunnelIdleMs: 3_600_000,
  /** How long a client that was refused may take to read why. */
  lingerMs: 500,
  /** Request line and headers, in each direction. */
  headerBytes: 32_768,
  headersTimeoutMs: 15_000,
  /** An HTTP connection without a byte, while a request or its answer is under way. */
  httpIdleMs: 600_000,
  /** A connection of the cell between two requests. */
  keepAliveMs: 60_000,
  /** A connection to a host between two requests. */
  upstreamKeepAliveMs: 4_000,
  /** Requests that a client may send ahead of their answers. */
  pipelined: 64,
  /** A secret is read again after this time. */
  secretMs: 60_000,
} as const;
