import { mkdir, mkdtemp, readdir, rm } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { afterEach, beforeEach, describe, expect, it, vi } from "vitest";
import { LiveRuns, makeOwnerDir, stopLiveRun } from "../../src/state/live-dir.ts";
import { currentOwner } from "../../src/state/owner.ts";

const [A, B] = ["aaaaaaaaaaaa", "bbbbbbbbbbbb"];
let live: string;
let ownerDir: string;

beforeEach(async () => {
  live = await mkdtemp(join(tmpdir(), "corral-live-"));
  ownerDir = await makeOwnerDir(live, currentOwner());
});

afterEach(async () => {
  await rm(live, { recursive: true, force: true });
});

describe("a live run", () => {
  it("is stopped by another process without a signal, and only that run", async () => {
    using runs = new LiveRuns(ownerDir);
    const [a, b] = [runs.add(A), runs.add(B)];
    expect(await stopLiveRun(live, currentOwner(), A)).toBe(true);
    await vi.waitFor(() => expect(a.aborted).toBe(true), { timeout: 30_000 });
    expect((a.reason as Error).message).toContain("corral runs stop");
    expect(b.aborted).toBe(false);
    expect(await stopLiveRun(live, currentOwner(), A)).toBe(false);
  });

  it("cannot be stopped once it is over, and its end stops no other", async () => {
    using runs = new LiveRuns(ownerDir);
    const [a, b] = [runs.add(A), runs.add(B)];
    runs.remove(A);
    expect(await stopLiveRun(live, currentOwner(), A)).toBe(false);
    await new Promise((resolve) => setTimeout(resolve, 50));
    expect([a.aborted, b.aborted]).toEqual([false, false]);
  });

  it("of a dead process is left alone: its id may be another's by now", async () => {
    using runs = new LiveRuns(ownerDir);
    runs.add(A);
    const later = { ...currentOwner(), boot: "another" };
    expect(await stopLiveRun(live, later, A)).toBe(false);
    expect(await readdir(join(ownerDir, "runs"))).toEqual([A]);
  });

  it("is never found by an id that is a path", async () => {
    await mkdir(join(live, "..", "victim"), { recursive: true });
    expect(await stopLiveRun(live, currentOwner(), "../owner")).toBe(false);
    using runs = new LiveRuns(ownerDir);
    expect(() => runs.add("../owner")).toThrow(RangeError);
    await rm(join(live, "..", "victim"), { recursive: true });
  });
});
