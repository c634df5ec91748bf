import { randomBytes } from "node:crypto";
import { expect, it } from "vitest";
import { endLeftProcesses } from "../../../src/isolation/kernel/first-process.ts";
import { canLeaveProcesses, leftProcess } from "./left-process.ts";

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
