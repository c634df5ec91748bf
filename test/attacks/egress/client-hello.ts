/** A ClientHello as no library makes it. Servers answer it with a ServerHello of TLS 1.2 if nothing in it is wrong. */
export interface HelloSpec {
  /** Entries of the one server name extension; absent: none. */
  readonly names?: readonly string[];
  /** Further extensions, in their order in front of the usual ones. */
  readonly extensions?: readonly (readonly [type: number, data: Buffer])[];
  /** Bytes in the record behind the hello. */
  readonly behind?: Buffer;
}

export const ENCRYPTED_CLIENT_HELLO = 0xfe0d;
export const PADDING = 21;

export function clientHello({ names, extensions = [], behind = Buffer.alloc(0) }: HelloSpec): Buffer {
  const all = [
    ...(names === undefined ? [] : [[0, serverNames(names)] as const]),
    ...extensions,
    [10, block(2, hex("001d0017"))] as const,
    [11, block(1, hex("00"))] as const,
    [13, block(2, hex("040308040401050308050501"))] as const,
  ];
  const ciphers = hex("c02fc030c02bc02c009c009d002f0035");
  const body = Buffer.concat([
    hex("0303"),
    Buffer.alloc(32, 7),
    block(1, Buffer.alloc(0)),
    block(2, ciphers),
    block(1, hex("00")),
    block(2, Buffer.concat(all.flatMap(([type, data]) => [number(2, type), block(2, data)]))),
  ]);
  return inRecords(Buffer.concat([hex("01"), block(3, body), behind]));
}

/** The data of a server name extension. */
export function serverNames(names: readonly string[]): Buffer {
  return block(2, Buffer.concat(names.flatMap((name) => [hex("00"), block(2, Buffer.from(name, "latin1"))])));
}

function inRecords(message: Buffer): Buffer {
  const records: Buffer[] = [];
  for (let at = 0; at < message.length; at += 16_384)
    records.push(hex("160301"), block(2, message.subarray(at, at + 16_384)));
  return Buffer.concat(records);
}

function block(size: 1 | 2 | 3, data: Buffer): Buffer {
  return Buffer.concat([number(size, data.length), data]);
}

function number(size: number, value: number): Buffer {
  const bytes = Buffer.alloc(size);
  bytes.writeUIntBE(value, 0, size);
  return bytes;
}

function hex(text: string): Buffer {
  return Buffer.from(text, "hex");
}
