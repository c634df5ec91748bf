import { Readable } from "node:stream";
import { describe, expect, it } from "vitest";
import { readInput } from "../../src/cli/run/attachments.ts";

const terminal = { cwd: "/", stdin: Readable.from([]) as unknown as NodeJS.ReadStream };

describe("readInput", () => {
  it("tells no input from the input null", async () => {
    expect(await readInput(undefined, terminal)).toBeUndefined();
    expect(await readInput("null", terminal)).toBeNull();
  });

  it.each([
    ["{", "1:2"],
    ["", "1:1"],
    ['{"a": 1,\n  b: 2}', "2:3"],
    ["[1, 2,\n 3,\n ?]", "3:2"],
    ['{"a": "x\ny"}', "1:9"],
    ["[1] 2", "1:5"],
  ])("says where %j stops being JSON", async (raw, place) => {
    await expect(readInput(raw, terminal)).rejects.toThrow(`--input:${place}: this is not JSON`);
  });

  it("reads what comes in pieces, also where a piece ends within a character", async () => {
    const bytes = Buffer.from('{"ä":"€"}');
    const stdin = Readable.from([...bytes].map((byte) => Buffer.from([byte]))) as unknown as NodeJS.ReadStream;
    expect(await readInput("-", { cwd: "/", stdin })).toEqual({ ä: "€" });
  });
});
