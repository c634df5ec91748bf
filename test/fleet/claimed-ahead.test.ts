import { expect, it } from "vitest";
import type { ClaimedItem } from "../../src/fleet/model/queue.ts";
import { ClaimedAhead } from "../../src/fleet/running/items-here.ts";

function ahead(isUsed = true) {
  const seen = { now: 0, begun: [] as number[], back: [] as number[] };
  const items = new ClaimedAhead({
    begin: async ({ request }) => void seen.begun.push(request.index),
    giveBack: async ({ request }) => void seen.back.push(request.index),
    now: () => seen.now,
    isUsed,
  });
  items.lanes = 2;
  const ran = (tookMs: number): void => {
    const end = items.measure();
    seen.now += tookMs;
    end();
    end();
  };
  const add = (count: number) =>
    Promise.all(Array.from({ length: count }, (_, index) => items.add({ request: { index } } as ClaimedItem)));
  return { seen, items, ran, add };
}

it("claims as many ahead as begin within a tenth of a second, and none before it knows how long items take", () => {
  const { items, ran } = ahead();
  expect(items.missing).toBe(0);
  ran(10);
  expect(items.missing).toBe(20);
  ran(0);
  ran(0);
  ran(0);
  ran(0);
  ran(0);
  expect(items.missing).toBe(32);
  for (const _ of Array.from({ length: 20 })) ran(201);
  expect(items.missing).toBe(0);
});

it("claims none ahead while an item that runs takes long, or if the store answers at once", () => {
  const slow = ahead();
  slow.ran(10);
  slow.items.measure();
  slow.seen.now += 201;
  expect(slow.items.missing).toBe(0);
  const atOnce = ahead(false);
  atOnce.ran(10);
  expect(atOnce.items.missing).toBe(0);
});

it("claims the next ones when half of them have begun, in their order", async () => {
  const { items, ran, add, seen } = ahead();
  ran(20);
  expect(items.missing).toBe(10);
  const added = add(10);
  for (const left of [9, 8, 7, 6]) {
    items.beginNext();
    expect([items.count, items.missing > 0]).toEqual([left, false]);
  }
  items.beginNext();
  expect(items.missing).toBe(5);
  while (items.beginNext());
  await added;
  expect(seen.begun).toEqual(Array.from({ length: 10 }, (_, index) => index));
});

it("gives back all that has not begun when it ends, and what is claimed later", async () => {
  const { items, add, seen } = ahead();
  const added = add(3);
  items.beginNext();
  items.end();
  expect(items.beginNext()).toBe(false);
  await added;
  await add(1);
  await items.allBack();
  expect(seen).toMatchObject({ begun: [0], back: [1, 2, 0] });
});

it("gives back what would have to wait for items that take longer than those before", async () => {
  const { items, ran, add, seen } = ahead();
  ran(10);
  const added = add(2);
  items.measure();
  items.releaseLate();
  expect(seen.back).toEqual([]);
  seen.now += 1000;
  items.releaseLate();
  await added;
  expect(seen.back).toEqual([0, 1]);
});
