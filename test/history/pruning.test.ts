import { mkdir, mkdtemp, readdir, rm, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { afterEach, beforeEach, describe, expect, it, vi } from "vitest";
import { runFolderName } from "../../src/history/recording.ts";
import { Pruning } from "../../src/history/retention.ts";

const HOUR_MS = 3_600_000;
let runsDir: string;
let projectRuns: string;
let made = 0;

beforeEach(async () => {
  runsDir = await mkdtemp(join(tmpdir(), "corral-pruning-"));
  projectRuns = join(runsDir, "1111111111111111");
  await mkdir(projectRuns);
});
afterEach(async () => {
  vi.useRealTimers();
  await rm(runsDir, { recursive: true });
});

describe("the history of a process that lives long", () => {
  it("is pruned again after 100 runs, and not looked at for each", async () => {
    const pruning = opened({ runs: 10 });
    await runs(pruning, 100);
    expect(await left(), "the first run saw nothing").toBe(100);
    await runs(pruning, 1);
    expect(await left()).toBe(10);
    await runs(pruning, 99);
    expect(await left()).toBe(109);
  });

  it("is pruned again before its runs have added 64 MiB and one run", async () => {
    const pruning = opened({ maxBytes: 20 * 4096 });
    await runs(pruning, 8);
    for (let n = 0; n < 7; n += 1) pruning.added(8 * 1024 ** 2);
    await runs(pruning, 1);
    expect(await left()).toBe(9);
    pruning.added(9 * 1024 ** 2);
    await runs(pruning, 40);
    expect(await left(), "it looks, and there is little enough").toBe(49);
    for (let n = 0; n < 9; n += 1) pruning.added(8 * 1024 ** 2);
    await runs(pruning, 1);
    expect(await left()).toBeLessThan(21);
  });

  it("is pruned again after an hour, at its next run", async () => {
    vi.useFakeTimers({ toFake: ["Date"] });
    const pruning = opened({ runs: 10 });
    await runs(pruning, 50);
    vi.setSystemTime(Date.now() + HOUR_MS - 1);
    await runs(pruning, 1);
    expect(await left()).toBe(51);
    vi.setSystemTime(Date.now() + 1);
    await runs(pruning, 1);
    expect(await left()).toBe(10);
  });
});

function opened({ runs = 1000, maxBytes = 1e9 }): Pruning {
  return new Pruning({ runsDir, keep: { days: 30, runs }, maxBytes, isDead: () => true });
}

/** Each begins and is over: its record is one line, which also says how many are kept. */
async function runs(pruning: Pruning, count: number): Promise<void> {
  for (let n = 0; n < count; n += 1) {
    const run = (made++).toString(16).padStart(12, "0");
    const dir = join(projectRuns, runFolderName(run, Date.now() - 60_000 + made));
    await mkdir(dir);
    const at = new Date().toISOString();
    const about = { type: "begin", version: 1, run, kind: "run", worker: "w", project: "/p", owner: "dead", at };
    const entry = { ...about, input: null, attachments: [], keep: { days: 30, runs: 10 } };
    await writeFile(join(dir, "record.ndjson"), `${JSON.stringify(entry)}\n`);
    pruning.begin(projectRuns);
    await pruning.idle();
  }
}

async function left(): Promise<number> {
  return (await readdir(projectRuns)).length;
}
