import { randomBytes } from "node:crypto";
import { afterEach, describe, expect, it, vi } from "vitest";
import { endedFromOutside, endLeftProcesses } from "../../../src/isolation/kernel/first-process.ts";
import { canLeaveProcesses, leftProcess } from "./left-process.ts";

afterEach(() => {
  vi.useRealTimers();
});

describe("a cell that the Engine ends", () => {
  const first = () => ({ pid: 1, isAlive: () => true, signal: vi.fn() });

  it("is left to the Engine while that answers", async () => {
    vi.useFakeTimers();
    const process = first();
    expect(await endedFromOutside(process, async () => "ended")).toBe("ended");
    await vi.advanceTimersByTimeAsync(60_000);
    expect(process.signal).not.toHaveBeenCalled();
  });

  it("is ended by its first process if the Engine waits, for example for a program that the worker stopped", async () => {
    vi.useFakeTimers();
    const process = first();
    const { promise, resolve } = Promise.withResolvers<string>();
    const ended = endedFromOutside(process, () => promise);
    process.signal.mockImplementation(() => resolve("ended"));
    await vi.advanceTimersByTimeAsync(2_000);
    expect(process.signal).not.toHaveBeenCalled();
    await vi.advanceTimersByTimeAsync(2_000);
    expect(await ended).toBe("ended");
    expect(process.signal.mock.calls).toEqual([["SIGKILL"]]);
  });
});

const NAMES = [(id: string) => id, (id: string) => `docker-${id}.scope`];
const newId = (): string => randomBytes(32).toString("hex");

it.skipIf(!canLeaveProcesses).each(NAMES)(
  "ends what is in the groups of these containers alone, and removes the groups: %s",
  async (nameOf) => {
    const [first, second, other] = [newId(), newId(), newId()];
    await using ours = leftProcess(first, nameOf);
    await using alsoOurs = leftProcess(second, nameOf);
    await using others = leftProcess(other, nameOf);
    await endLeftProcesses([first, "corral-0123456789ab", second, newId()]);
    for (const each of [ours, alsoOurs]) {
      expect(await each.ended).toEqual([null, "SIGKILL"]);
      expect(each.hasGroup()).toBe(false);
    }
    expect(others.isOver()).toBe(false);
  },
);
