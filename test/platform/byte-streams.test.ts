import { expect, it } from "vitest";
import { passedOn } from "../../src/platform/byte-streams.ts";

it("keeps little of what was passed on and read", async () => {
  const before = process.memoryUsage().arrayBuffers;
  async function* pieces() {
    for (let count = 0; count < 1000; count += 1) yield new Uint8Array(64 * 1024);
  }
  let most = 0;
  for await (const _ of passedOn(pieces())) most = Math.max(most, process.memoryUsage().arrayBuffers - before);
  expect(most).toBeLessThan(8 * 1024 ** 2);
});
