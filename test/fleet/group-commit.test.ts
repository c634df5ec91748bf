import { afterEach, beforeEach, expect, it, vi } from "vitest";
import { GroupCommit } from "../../src/fleet/stored/group-commit.ts";

let groups: string[] = [];
let writes: GroupCommit<string>;

beforeEach(() => {
  vi.useFakeTimers({ toFake: ["setTimeout", "clearTimeout", "performance"] });
  groups = [];
  writes = new GroupCommit(async (writes) => {
    groups.push(writes.join(" "));
    return writes.map((value) => ({ value }));
  });
});

afterEach(() => vi.useRealTimers());

/** All that needs no time has happened. */
const settled = async (): Promise<void> => {
  for (let round = 0; round < 5; round += 1) await new Promise((resolve) => setImmediate(resolve));
};

it("keeps a write that may wait for 20 ms, and commits it with those that come meanwhile", async () => {
  const first = writes.add("a", "soon");
  await settled();
  vi.advanceTimersByTime(15);
  const second = writes.add("b", "soon");
  await settled();
  expect(groups).toEqual([]);
  vi.advanceTimersByTime(5);
  expect(await Promise.all([first, second])).toEqual(["a", "b"]);
  expect(groups).toEqual(["a b"]);
});

it("lets a write that is wanted now wait for none, and takes along what waits", async () => {
  const waits = writes.add("a", "soon");
  await settled();
  const wanted = writes.add("b");
  expect(await Promise.all([waits, wanted])).toEqual(["a", "b"]);
  expect(groups).toEqual(["a b"]);
  await writes.add("c");
  expect(groups).toEqual(["a b", "c"]);
});

it("commits what waits before it is flushed, and before it is closed", async () => {
  void writes.add("a", "soon");
  await writes.flushed();
  expect(groups).toEqual(["a"]);
  void writes.add("b", "soon");
  await settled();
  await writes.close();
  expect(groups).toEqual(["a", "b"]);
});

it("tries each write alone if their group failed, so that one that is wrong does not take the others with it", async () => {
  const picky = new GroupCommit<string>(async (group) => {
    groups.push(group.join(" "));
    if (group.includes("wrong")) throw new RangeError(group.join(" "));
    return group.map((value) => ({ value }));
  });
  const all = await Promise.allSettled(["a", "wrong", "b"].map((write) => picky.add(write)));
  expect(all.map((one) => (one.status === "fulfilled" ? one.value : String(one.reason)))).toEqual([
    "a",
    "RangeError: wrong",
    "b",
  ]);
  expect(groups).toEqual(["a wrong b", "a", "wrong", "b"]);
});
