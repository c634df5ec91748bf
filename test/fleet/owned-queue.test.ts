import { expect, it } from "vitest";
import type { Claim, FleetQueue, NotTaken } from "../../src/fleet/model/queue.ts";
import { FleetTaken, OwnedQueue } from "../../src/fleet/running/owned-queue.ts";

const TAKEN: NotTaken = { ok: false, code: "taken", reason: "another process took it over", isInherited: false };

function ownedQueue() {
  const seen = { now: 0, asked: 0, lost: 0, fleet: "running" as Claim["fleet"] };
  const answer = async () => (seen.fleet === "taken" ? TAKEN : { ok: true as const });
  const queue: FleetQueue = {
    async claim() {
      seen.asked += 1;
      return { items: [], nextAtMs: null, elsewhere: 0, fleet: seen.fleet };
    },
    ...{ begin: answer, settle: answer, requeue: answer, cancelQueued: async () => 0 },
    counts: async () => ({ total: 0, queued: 0, running: 0, done: 0, failed: 0, pending: 0 }),
  };
  const owned = new OwnedQueue(
    queue,
    () => seen.now,
    () => {
      seen.lost += 1;
    },
  );
  return { seen, owned };
}

it("asks whether the fleet is still its own only if the store has not answered for 5 seconds", async () => {
  const { seen, owned } = ownedQueue();
  await owned.confirm();
  seen.now = 5000;
  await owned.confirm();
  expect(seen.asked).toBe(1);
  seen.now = 5001;
  await owned.requeue(0, 1, 0);
  await owned.confirm();
  expect(seen.asked).toBe(1);
  seen.now = 20_000;
  seen.fleet = "taken";
  await expect(owned.confirm()).rejects.toThrow(FleetTaken);
  expect(seen).toMatchObject({ asked: 2, lost: 1 });
});

it.each(["claim", "settle", "requeue"] as const)("has lost the fleet for good if a %s is refused", async (which) => {
  const { seen, owned } = ownedQueue();
  seen.fleet = "taken";
  const none = () => ({ run: "r", cell: null });
  if (which === "claim") await owned.claim(1, none);
  else if (which === "requeue") await owned.requeue(0, 1, 0);
  else await owned.settle(0, 1, {} as Parameters<FleetQueue["settle"]>[2]);
  await expect(owned.confirm()).rejects.toThrow("another process took over the fleet");
  await owned.claim(1, none);
  expect(seen.lost).toBe(1);
});
