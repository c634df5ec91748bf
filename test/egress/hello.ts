/** A ClientHello with these extensions, as one handshake message. */
export function helloMessage(extensions: readonly (readonly [type: number, data: Buffer])[]): Buffer {
  const listed = Buffer.concat(extensions.flatMap(([type, data]) => [number(type, 2), block(data)]));
  const body = Buffer.concat([
    Buffer.from([3, 3]),
    Buffer.alloc(32, 7),
    Buffer.from([0]),
    block(Buffer.from([0x13, 0x01])),
    Buffer.from([1, 0]),
    block(listed),
  ]);
  return Buffer.concat([Buffer.from([1]), number(body.length, 3), body]);
}

/** The extension for a server name. */
export function serverName(name: string): readonly [number, Buffer] {
  return [0, block(Buffer.concat([Buffer.from([0]), block(Buffer.from(name))]))];
}

/** In records of at most `size` bytes. */
export function records(message: Buffer, size = 16_384): Buffer {
  const count = Math.ceil(message.length / size);
  const parts = Array.from({ length: count }, (_, index) => message.subarray(index * size, (index + 1) * size));
  return Buffer.concat(parts.map((part) => Buffer.concat([Buffer.from([22, 3, 1]), block(part)])));
}

function block(bytes: Buffer): Buffer {
  return Buffer.concat([number(bytes.length, 2), bytes]);
}

function number(value: number, size: number): Buffer {
  const bytes = Buffer.alloc(size);
  bytes.writeUIntBE(value, 0, size);
  return bytes;
}
