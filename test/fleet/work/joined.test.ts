import { expect, it } from "vitest";
import type { Membership } from "../../../src/fleet/model/work.ts";
import { joined } from "../../../src/fleet/work/joined.ts";

const MACHINE = { name: "m", labels: [], slots: 1, version: "0" };
const MEMBER = {} as Membership;
const pause = async (): Promise<void> => {};
const NEVER = new AbortController().signal;

/** Refuses so often, then lets in. */
function troubled(times: number) {
  let asked = 0;
  return {
    join: async () => {
      asked += 1;
      if (asked <= times) throw new Error("the queue does not answer");
      return MEMBER;
    },
  };
}

it("joins a queue that is away for long, and says once that it waits", async () => {
  const told: string[] = [];
  const onTrouble = (detail: string): void => void told.push(detail);
  expect(await joined(troubled(40), MACHINE, { over: NEVER, pause, onTrouble })).toBe(MEMBER);
  expect(told).toEqual(["the queue does not answer"]);
});

it("rejects if the queue does not answer at the start", async () => {
  const joining = joined(troubled(1), MACHINE, { over: NEVER, pause, onTrouble: null });
  await expect(joining).rejects.toThrow("the queue does not answer");
});

it("ends while it waits, and leaves if it is let in afterwards", async () => {
  const over = new AbortController();
  const late = Promise.withResolvers<Membership>();
  const left = Promise.withResolvers<void>();
  const joining = joined({ join: () => late.promise }, MACHINE, { over: over.signal, pause, onTrouble: null });
  over.abort();
  expect(await joining).toBeNull();
  late.resolve({ [Symbol.asyncDispose]: async () => left.resolve() } as unknown as Membership);
  await left.promise;
});
