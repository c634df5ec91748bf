import { expect, it } from "vitest";
import { placesIn } from "../../src/files/edit/edited-content.ts";
import { LoopWatch } from "./watched-loop.ts";

const turn = async (): Promise<void> => await new Promise((resolve) => setTimeout(resolve, 60));

it("the watch over the loop names what of Corral held it up, and a test's own work is not Corral's", async () => {
  const watch = new LoopWatch();
  await turn();
  const { user } = process.threadCpuUsage();
  while (process.threadCpuUsage().user - user < 400_000);
  await turn();
  expect(watch.taken()).toEqual([]);
  placesIn("ab".repeat(30_000_000), "ac");
  await turn();
  const held = [{ ms: expect.any(Number), where: "files/edit/edited-content.ts: placesIn" }];
  expect(watch.taken()).toEqual(held);
  // As another file of the same process has it.
  watch[Symbol.dispose]();
  using later = new LoopWatch();
  placesIn("ab".repeat(30_000_000), "ac");
  await turn();
  expect(later.taken()).toEqual(held);
});
