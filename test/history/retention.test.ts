import { mkdir, mkdtemp, readdir, rm, symlink, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { afterEach, beforeEach, describe, expect, it } from "vitest";
import { runFolderName, runFolders } from "../../src/history/recording.ts";
import { type PruneOptions, prune } from "../../src/history/retention.ts";

const DAY_MS = 86_400_000;
const NOW = Date.UTC(2026, 5, 1);
const [ONE, TWO] = ["1111111111111111", "2222222222222222"] as const;
let runsDir: string;

beforeEach(async () => {
  runsDir = await mkdtemp(join(tmpdir(), "corral-runs-"));
});

afterEach(async () => {
  await rm(runsDir, { recursive: true, force: true });
});

describe("the retention of runs", () => {
  it("removes what is older than the project keeps it, and nothing else", async () => {
    await add(ONE, 1, { ageDays: 31 });
    await add(ONE, 2, { ageDays: 29 });
    await add(TWO, 3, { ageDays: 31, days: 60 });
    const { removed } = await pruned();
    expect(removed.map(({ run, why }) => [run, why])).toEqual([[idOf(1), "older than 30 days"]]);
    expect(await left()).toEqual([idOf(2), idOf(3)]);
  });

  it("removes the oldest of more than the project keeps, by the word of its newest run", async () => {
    for (let n = 0; n < 5; n += 1) await add(ONE, n, { ageDays: 5 - n, runs: n === 4 ? 2 : 100 });
    await pruned();
    expect(await left()).toEqual([idOf(3), idOf(4)]);
  });

  it("removes the oldest of all projects until the rest is small enough", async () => {
    await add(ONE, 1, { ageDays: 3, bytes: 40_000 });
    await add(TWO, 2, { ageDays: 2, bytes: 40_000 });
    await add(ONE, 3, { ageDays: 1, bytes: 40_000 });
    const { removed, bytes } = await pruned({ maxBytes: 100_000 });
    expect(removed.map(({ run }) => run)).toEqual([idOf(1)]);
    expect(bytes).toBeLessThanOrEqual(100_000);
  });

  it("never removes a run that is not over, and removes one whose process has died", async () => {
    await add(ONE, 1, { ageDays: 90, owner: "alive", ended: false });
    await add(ONE, 2, { ageDays: 90, owner: "dead", ended: false });
    await pruned();
    expect(await left()).toEqual([idOf(1)]);
  });

  it("changes nothing as a rehearsal", async () => {
    await add(ONE, 1, { ageDays: 90 });
    expect((await pruned({ dryRun: true })).removed).toHaveLength(1);
    expect(await left()).toEqual([idOf(1)]);
  });

  it("is safe if two processes do it at once, and clears what a killed one left", async () => {
    for (let n = 0; n < 50; n += 1) await add(ONE, n, { ageDays: 90 });
    await mkdir(join(runsDir, ONE, ".removed-left"));
    const both = await Promise.all([pruned(), pruned(), pruned()]);
    expect(both.flatMap(({ removed }) => removed.map(({ run }) => run)).toSorted()).toHaveLength(50);
    expect(await readdir(join(runsDir, ONE))).toEqual([]);
  });

  it("looks only at folders that have the name of a run, and removes no target of a link", async () => {
    const elsewhere = await mkdtemp(join(tmpdir(), "corral-elsewhere-"));
    await writeFile(join(elsewhere, "mine"), "mine");
    await mkdir(join(runsDir, ONE), { recursive: true });
    await symlink(elsewhere, join(runsDir, ONE, runFolderName(idOf(1), NOW - 90 * DAY_MS)));
    await mkdir(join(runsDir, ONE, "notes"));
    await pruned();
    expect(await readdir(join(runsDir, ONE))).toEqual(["notes"]);
    expect(await readdir(elsewhere)).toEqual(["mine"]);
    await rm(elsewhere, { recursive: true });
  });

  it("takes no name of a folder from the id of anything but a run", () => {
    expect(() => runFolderName("../../etc", NOW)).toThrow(RangeError);
  });
});

function idOf(n: number): string {
  return n.toString(16).padStart(12, "0");
}

interface Added {
  readonly ageDays: number;
  readonly days?: number;
  readonly runs?: number;
  readonly bytes?: number;
  readonly owner?: string;
  readonly ended?: boolean;
}

async function add(project: string, n: number, added: Added): Promise<void> {
  const { ageDays, days = 30, runs = 100, bytes = 0, owner = "dead", ended = true } = added;
  const run = idOf(n);
  const dir = join(runsDir, project, runFolderName(run, NOW - ageDays * DAY_MS));
  await mkdir(dir, { recursive: true });
  const at = new Date(NOW - ageDays * DAY_MS).toISOString();
  const lines: object[] = [
    {
      type: "begin",
      version: 1,
      run,
      kind: "run",
      worker: "w",
      project: "/p",
      owner,
      at,
      input: null,
      attachments: [],
      keep: { days, runs },
    },
  ];
  const none = { exitCode: null, signal: null, error: null, cpuMs: null, memoryBytesPeak: null, changeset: null };
  if (ended)
    lines.push({
      type: "ended",
      run,
      at,
      status: "succeeded",
      durationMs: 1,
      truncated: false,
      network: null,
      agent: null,
      leftOut: 0,
      ...none,
    });
  await writeFile(join(dir, "record.ndjson"), lines.map((line) => `${JSON.stringify(line)}\n`).join(""));
  if (bytes > 0) await writeFile(join(dir, "stdout.0"), Buffer.alloc(bytes, 1));
}

async function pruned(options: Partial<PruneOptions> = {}) {
  return await prune(runsDir, { maxBytes: 1e9, nowMs: NOW, isDead: (owner) => owner === "dead", ...options });
}

async function left(): Promise<string[]> {
  const folders = await Promise.all([ONE, TWO].map((project) => runFolders(join(runsDir, project))));
  return folders
    .flat()
    .map(({ run }) => run)
    .toSorted();
}
