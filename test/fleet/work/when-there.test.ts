import { expect, it } from "vitest";
import { type CoordinatorWait, whenThere } from "../../../src/fleet/work/asking-coordinator.ts";

const THING: AsyncDisposable = { async [Symbol.asyncDispose]() {} };

/** Fails so often, then opens. */
function troubled(times: number, why: (attempt: number) => string = () => "the queue does not answer") {
  let asked = 0;
  return async () => {
    asked += 1;
    if (asked <= times) throw new Error(why(asked));
    return THING;
  };
}

function patience(over = new AbortController().signal) {
  const [told, pauses]: [string[], number[]] = [[], []];
  const waiting: CoordinatorWait = {
    over,
    isPassing: (error) => !(error as Error).message.includes("password"),
    onAway: (why) => void told.push(why),
    pause: async (ms) => void pauses.push(ms),
  };
  return { told, pauses, waiting };
}

it("waits for what is away for long with growing pauses, and says once that it waits", async () => {
  const { told, pauses, waiting } = patience();
  expect(await whenThere(troubled(40), waiting)).toBe(THING);
  expect(told).toEqual(["the queue does not answer"]);
  expect(pauses).toHaveLength(40);
  expect(pauses.slice(0, 6)).toEqual([1000, 2000, 4000, 8000, 15_000, 15_000]);
});

it("says each reason, up to ten", async () => {
  const { told, waiting } = patience();
  expect(
    await whenThere(
      troubled(60, (attempt) => `reason ${attempt % 20}`),
      waiting,
    ),
  ).toBe(THING);
  expect(told).toEqual(Array.from({ length: 10 }, (_, n) => `reason ${n + 1}`));
});

it("throws what will not pass, also after it has waited", async () => {
  const { told, waiting } = patience();
  const why = (attempt: number): string => (attempt < 3 ? "it starts up" : "the password is wrong");
  await expect(whenThere(troubled(9, why), waiting)).rejects.toThrow("the password is wrong");
  expect(told).toEqual(["it starts up"]);
});

it("ends while it waits for an answer, and closes what opens afterwards", async () => {
  const over = new AbortController();
  const late = Promise.withResolvers<AsyncDisposable>();
  const closed = Promise.withResolvers<void>();
  const opening = whenThere(() => late.promise, patience(over.signal).waiting);
  over.abort();
  expect(await opening).toBeNull();
  late.resolve({ [Symbol.asyncDispose]: async () => closed.resolve() });
  await closed.promise;
});

it("ends in a pause", async () => {
  const over = new AbortController();
  const { waiting } = patience(over.signal);
  expect(await whenThere(troubled(9), { ...waiting, pause: async () => over.abort() })).toBeNull();
});
