import { expect, it } from "vitest";
import { Channel } from "../../src/fleet/running/result-recorder.ts";

it("gives values in order to a consumer that takes them all, and lets a producer wait while it is full", async () => {
  const channel = new Channel<number>(1);
  const producing = (async () => {
    for (const value of [1, 2, 3]) await channel.put(value);
    channel.close();
  })();
  expect(await Array.fromAsync(channel)).toEqual([1, 2, 3]);
  await producing;
});

it("lets all waiting producers continue when the consumer leaves", async () => {
  const channel = new Channel<number>(1);
  await channel.put(1);
  const waiting = [2, 3, 4].map((value) => channel.put(value));
  for await (const value of channel) {
    expect(value).toBe(1);
    break;
  }
  await Promise.all([...waiting, channel.put(5)]);
}, 5000);
