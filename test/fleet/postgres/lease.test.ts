import { afterEach, expect, it, vi } from "vitest";
import { type Connection, OwnerLease, type StatementWait } from "../../../src/fleet/postgres/connection.ts";
import { PostgresMembership } from "../../../src/fleet/postgres/membership.ts";

afterEach(() => void vi.useRealTimers());

/** A database whose answers a test chooses. */
function answering(answer: (text: string, patience: StatementWait) => Promise<unknown[]>): Connection {
  const query = async (text: string, _values: readonly unknown[] = [], patience: StatementWait = {}) =>
    await answer(text, patience);
  return { query, endHolders: async () => 0, [Symbol.asyncDispose]: async () => {} } as unknown as Connection;
}

it("renews the lease of an owner once at a time, and again when the database has answered", async () => {
  vi.useFakeTimers();
  let [asked, answer] = [0, () => {}];
  const lease = new OwnerLease(
    answering(async () => {
      asked += 1;
      if (asked === 2) await new Promise<void>((resolve) => (answer = resolve));
      return [];
    }),
    "me",
  );
  await lease.begin();
  await vi.advanceTimersByTimeAsync(30_000);
  expect(asked).toBe(2);
  answer();
  await vi.advanceTimersByTimeAsync(3000);
  expect(asked).toBe(3);
  await lease[Symbol.asyncDispose]();
});

it("asks what a claim that was sent twice took late, and stops to ask after minutes", async () => {
  vi.useFakeTimers({ toFake: ["performance", "setInterval", "clearInterval"] });
  let asked = 0;
  const member = await PostgresMembership.join(
    answering(async (text, { onSent }) => {
      onSent?.();
      if (text.includes("machine_join($1")) return [{ id: "m" }];
      if (text.includes("machine_renew($1")) return [{ renewed: true }];
      if (text.includes("machine_claim($1")) onSent?.();
      if (text.includes("machine_withdrawn($1")) asked += 1;
      return [];
    }),
    { name: "m", labels: [], slots: 1, version: "0" },
  );
  await member.withdrawn();
  expect(asked).toBe(0);
  await member.claim(["f"], 1, () => ({ run: "r", cell: null }));
  // The database gives back what a machine has had for a minute.
  await vi.advanceTimersByTimeAsync(90_000);
  await member.withdrawn();
  expect(asked).toBe(1);
  await vi.advanceTimersByTimeAsync(120_000);
  await member.withdrawn();
  expect(asked).toBe(1);
  await member[Symbol.asyncDispose]();
});
