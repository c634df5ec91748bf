import type { Readable, Writable } from "node:stream";

/**
 * Writes `first` and then all of `rest`, as fast as `input` takes it, and ends it. Leaves `rest` alone once nobody reads any more, with what it still
 * has; an error of it ends the input.
 */
export function pour(first: Uint8Array, rest: Readable, input: Writable): void {
  input.write(first);
  if (rest.readableEnded || rest.destroyed) {
    input.end();
    return;
  }
  const end = (): void => void input.end();
  rest.once("error", end).once("close", end);
  input.once("close", () => {
    rest.unpipe(input).off("error", end).off("close", end).pause();
  });
  rest.pipe(input);
}
