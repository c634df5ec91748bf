import type { Readable } from "node:stream";
import { shapeProblem } from "../json/parse-json.ts";
import { MAX_MESSAGE_BYTES, MAX_MESSAGE_VALUES } from "./message-limits.ts";

const NEWLINE = 0x0a;

/**
 * The lines of a stream, each with its newline. A line that is nested too deeply or has too many values is given to
 * `refuse` instead. Nothing more is read until that has settled. Throws for a line that is too long, because the start
 * of the next one is unknown. What follows the last newline is dropped.
 */
export async function* messageLines(
  input: Readable,
  refuse: (line: string, problem: string) => Promise<void>,
): AsyncGenerator<Buffer, void, undefined> {
  let parts: Buffer[] = [];
  let bytes = 0;
  for await (const chunk of input as AsyncIterable<Buffer>) {
    let from = 0;
    for (let end = chunk.indexOf(NEWLINE); end >= 0; end = chunk.indexOf(NEWLINE, from)) {
      const line = Buffer.concat([...parts, chunk.subarray(from, end + 1)]);
      [parts, bytes, from] = [[], 0, end + 1];
      // Quicker than UTF-8, and the same for the characters that make the shape.
      const text = line.toString("latin1");
      const problem = shapeProblem(text, MAX_MESSAGE_VALUES);
      if (problem === null) yield line;
      else await refuse(text, problem);
    }
    parts.push(chunk.subarray(from));
    bytes += chunk.length - from;
    if (bytes > MAX_MESSAGE_BYTES) throw new Error(`a message has at most ${MAX_MESSAGE_BYTES} bytes`);
  }
}
