import fs from "node:fs";
import { join } from "node:path";
import { expect, it } from "vitest";
import { listFleetVerb } from "../../src/cli/changes/changes.ts";
import type { Terminal } from "../../src/cli/terminal/terminal.ts";
import { FleetJournal } from "../../src/fleet/journal/journal.ts";
import type { FleetSpec } from "../../src/fleet/model/item.ts";
import { unrunResult } from "../../src/fleet/running/item-result.ts";
import { projectPaths } from "../../src/state/state-dir.ts";
import { stagedFolder } from "../changes/staged-folder.ts";
import { temporaryFolder } from "../files/temporary-folder.ts";
import { AT_LENGTH } from "../tiers/at-length.ts";

const MANY = AT_LENGTH ? 10_000 : 1000;
const SPEC: FleetSpec = {
  ...{ version: 1, worker: "w", policy: null, concurrency: 1, reuse: "fresh", timeoutMs: null, retries: 0 },
  ...{ maxFailures: null, cache: false, source: "a test" },
};

it("the changesets of a large fleet are listed one after another, in little memory", { timeout: 600_000 }, async () => {
  const folder = temporaryFolder();
  try {
    const [stateDir, projectDir] = ["state", "project"].map((name) => join(fs.realpathSync(folder.path), name)) as [
      string,
      string,
    ];
    for (const dir of [stateDir, projectDir]) fs.mkdirSync(dir, { mode: 0o700 });
    fs.writeFileSync(join(projectDir, "corral.yaml"), "version: 1\n");
    const fleet = await pendingFleet(stateDir, projectDir);
    const text = { stdout: "", stderr: "" };
    const stream = (name: "stdout" | "stderr") => ({ columns: 60, write: (some: string) => (text[name] += some) });
    const terminal = {
      ...{ env: { CORRAL_STATE_DIR: stateDir, NO_COLOR: "1" }, cwd: projectDir },
      ...{ stdout: stream("stdout"), stderr: stream("stderr") },
    } as unknown as Terminal;
    const [before, since] = [process.memoryUsage().rss, performance.now()];
    expect(await listFleetVerb(fleet, { project: projectDir }, terminal)).toBe(0);
    const [ms, mib] = [performance.now() - since, (process.memoryUsage().rss - before) / 1024 ** 2];
    process.stderr.write(`${MANY} changesets: ${Math.round(ms)} ms, ${Math.round(mib)} MiB more\n`);
    const lines = text.stdout.trimEnd().split("\n");
    expect(lines[0]).toBe(`${MANY / 10} conflict: it was changed since the run began`);
    expect(lines.at(-1)).toMatch(/items: [\d,]+ files, \+\d+ -\d+ lines, /);
    expect(Math.max(...lines.slice(8).map((line) => line.length))).toBeLessThanOrEqual(62);
    expect(ms / MANY, "milliseconds for each").toBeLessThan(20);
    expect(mib).toBeLessThan(300);
  } finally {
    folder.remove();
  }
});

/** As many real runs leave it, made without them: each item changed one line of one file. */
async function pendingFleet(stateDir: string, projectDir: string): Promise<string> {
  const path = projectPaths(stateDir, projectDir).fleets;
  await using journal = await FleetJournal.open(path, { self: "this test", isDead: () => false });
  const fleet = await journal.create(SPEC);
  await journal.load(fleet, requests(), { collisionsIn: async () => null });
  const queue = await journal.queue(fleet);
  for (let made = 0; made < MANY; ) {
    const { items } = await queue.claim(500, () => ({ run: (made++).toString(16).padStart(12, "0"), cell: null }));
    for (const { request, run } of items) keep(stateDir, projectDir, run, { id: fleet, item: request.index });
    await Promise.all(
      items.map((claimed) => {
        const { run, attempt } = claimed;
        const error = { code: "CHANGES_HELD", message: "It waits." };
        const changeset = { id: run, counts: { held: 1 } };
        const result = { ...unrunResult(claimed, "pending"), run, attempt, exitCode: 0, error, changeset };
        return queue.settle(result.index, attempt, { result, cacheKey: null, streams: { stdout: "", stderr: "" } });
      }),
    );
  }
  expect(await journal.end(fleet)).not.toBeNull();
  return fleet;
}

async function* requests() {
  for (let index = 0; index < MANY; index++)
    yield { index, key: `item-${index}`, place: `line ${index}`, attachments: [] };
}

function keep(stateDir: string, project: string, id: string, fleet: { id: string; item: number }): void {
  // Below the one folder of this test: a test that is stopped leaves no thousands of folders.
  const path = join(project, "staged", id);
  fs.mkdirSync(path, { recursive: true });
  const staged = stagedFolder({ "a.txt": "one\ntwo\n" }, { "a.txt": "one\nthree\n" }, { path, remove: () => {} });
  const dir = join(stateDir, "changes", id);
  fs.mkdirSync(join(dir, "content"), { recursive: true, mode: 0o700 });
  const changeset = { ...staged.changeset(id), project, fleet };
  const { mounts, changes, root: _, ...about } = changeset;
  fs.writeFileSync(join(dir, "changeset.json"), JSON.stringify(changeset));
  const outcomes = changes.map(({ index }) => ({ index, outcome: "held", reason: null }));
  fs.writeFileSync(join(dir, "state.json"), JSON.stringify({ ...about, changes: outcomes }));
  fs.renameSync(staged.content, join(dir, "content/0"));
  // Of one in ten another process changed the file meanwhile.
  if (fleet.item % 10 === 0) fs.writeFileSync(join(mounts[0]?.target ?? "", "a.txt"), "theirs");
}
