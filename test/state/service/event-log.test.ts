import { readdirSync, readFileSync, writeFileSync } from "node:fs";
import { mkdtemp, rm } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { afterEach, beforeEach, describe, expect, it } from "vitest";
import { EventLogs } from "../../../src/state/service/event-log.ts";

let stateDir: string;
beforeEach(async () => {
  stateDir = await mkdtemp(join(tmpdir(), "corral-events-"));
});
afterEach(() => rm(stateDir, { recursive: true }));

const LIMITS = { maxLogs: 5, maxBytes: 1000 };
const INTERRUPTED = { type: "interrupted" };
const idOf = (n: number): string => n.toString(16).padStart(12, "0");
const folder = (): string => join(stateDir, "service/events");
const kept = (): number[] =>
  readdirSync(folder())
    .filter((name) => !name.includes("."))
    .map((name) => Number.parseInt(name, 16))
    .sort((a, b) => a - b);

async function opened(limits = LIMITS): Promise<EventLogs> {
  const logs = new EventLogs(stateDir, limits);
  await logs.prepare(INTERRUPTED);
  return logs;
}

function written(logs: EventLogs, n: number, bytes = 1): void {
  const log = logs.append(idOf(n));
  log.write({ type: "x".repeat(bytes) });
  log.end("{}");
}

describe("the logs of events", () => {
  it("are so many at most while the service runs, and the oldest go first, with their ends", async () => {
    const logs = await opened();
    for (let n = 0; n < 20; n++) written(logs, n);
    expect(kept()).toEqual([15, 16, 17, 18, 19]);
    expect(readdirSync(folder())).toHaveLength(10);
    expect([logs.has(idOf(14)), logs.has(idOf(15))]).toEqual([false, true]);
  });

  it("have so many bytes at most together", async () => {
    const logs = await opened();
    for (let n = 0; n < 4; n++) written(logs, n, 300);
    expect(kept()).toEqual([1, 2, 3]);
  });

  it("lose none that is written, and none that a client reads", async () => {
    const logs = await opened();
    const open = logs.append(idOf(0));
    open.write({ type: "first" });
    written(logs, 1);
    const reading = logs.read(idOf(1), 0, new AbortController().signal, 10_000);
    await reading.next();
    for (let n = 2; n < 20; n++) written(logs, n);
    expect(kept()).toEqual([0, 1, 17, 18, 19]);
    expect(readFileSync(join(folder(), idOf(0)), "utf8")).toBe('{"type":"first"}\n');
    await reading.return();
    open.end();
    written(logs, 20);
    expect(kept()).toEqual([0, 17, 18, 19, 20]);
  });

  it("that an earlier service left count, the oldest first, and one that it left open has an end", async () => {
    const before = await opened({ ...LIMITS, maxLogs: 100 });
    for (let n = 0; n < 8; n++) written(before, n);
    writeFileSync(join(folder(), idOf(8)), '{"type":"x"}\n');
    const logs = await opened();
    expect(kept()).toHaveLength(5);
    expect(kept()).toContain(8);
    expect(readFileSync(join(folder(), idOf(8)), "utf8")).toContain("interrupted");
    written(logs, 9);
    expect(kept()).toHaveLength(5);
    expect(kept()).toEqual(expect.arrayContaining([8, 9]));
  });
});
