import fc from "fast-check";
import { describe, expect, it } from "vitest";
import { Demultiplexer } from "../../../src/isolation/engine/attachment.ts";

type Piece = ["stdout" | "stderr", Buffer];

function framed([stream, content]: Piece): Buffer {
  const header = Buffer.from([stream === "stdout" ? 1 : 2, 0, 0, 0, 0, 0, 0, 0]);
  header.writeUInt32BE(content.length, 4);
  return Buffer.concat([header, content]);
}

function texts(pieces: readonly Piece[]): { stdout: string; stderr: string } {
  const of = (name: string) => Buffer.concat(pieces.filter(([stream]) => stream === name).map(([, bytes]) => bytes));
  return { stdout: of("stdout").toString("hex"), stderr: of("stderr").toString("hex") };
}

describe("taking the Engine's stream apart", () => {
  const piece = fc.tuple(fc.constantFrom("stdout" as const, "stderr" as const), fc.uint8Array({ maxLength: 40 }));

  it("gives each stream its bytes in order, wherever the chunks are cut", () => {
    fc.assert(
      fc.property(fc.array(piece, { maxLength: 20 }), fc.array(fc.integer({ min: 1, max: 50 })), (made, cuts) => {
        const pieces = made.map(([stream, bytes]): Piece => [stream, Buffer.from(bytes)]);
        const seen: Piece[] = [];
        const streams = new Demultiplexer((stream, chunk) => seen.push([stream, Buffer.from(chunk)]));
        let rest = Buffer.concat(pieces.map(framed));
        for (const cut of [...cuts, rest.length]) {
          expect(streams.add(rest.subarray(0, cut))).toBe(true);
          rest = rest.subarray(cut);
        }
        expect(texts(seen)).toEqual(texts(pieces));
      }),
    );
  });

  it("takes a chunk of many tiny frames, which once overflowed the stack of the client library's own", () => {
    let bytes = 0;
    const streams = new Demultiplexer((_, chunk) => {
      bytes += chunk.length;
    });
    const frames = 200_000;
    expect(streams.add(Buffer.concat(Array(frames).fill(framed(["stdout", Buffer.from("a")]))))).toBe(true);
    expect(bytes).toBe(frames);
  });

  it("passes on what has come of a frame, and does not wait for the rest", () => {
    const seen: string[] = [];
    const streams = new Demultiplexer((stream, chunk) => seen.push(`${stream} ${chunk}`));
    const frame = framed(["stderr", Buffer.from("half of it")]);
    streams.add(frame.subarray(0, 12));
    expect(seen).toEqual(["stderr half"]);
  });

  it.each([
    ["another stream's number", Buffer.from([7, 0, 0, 0, 0, 0, 0, 1, 65])],
    ["a frame too large to be one", Buffer.from([1, 0, 0, 0, 255, 255, 255, 255, 65])],
  ])("says so where there is %s", (_, bytes) => {
    const streams = new Demultiplexer(() => {
      throw new Error("nothing of it may be passed on");
    });
    expect(streams.add(bytes)).toBe(false);
  });
});
