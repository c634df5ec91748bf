import { mkdir, mkdtemp, rm, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { expect, it, onTestFinished } from "vitest";
import { namesOf } from "../../src/cli/shell/complete.ts";
import { FleetJournal } from "../../src/fleet/journal/journal.ts";
import { projectPaths, statePaths } from "../../src/state/state-dir.ts";
import { loadedFleet } from "../fleet/journal/journal-fixture.ts";

it("the names for completion are those of the project around, and of its own state", async () => {
  const base = await mkdtemp(join(tmpdir(), "corral-names-"));
  onTestFinished(() => rm(base, { recursive: true }));
  const [dir, stateDir] = [join(base, "project"), join(base, "state")];
  const paths = projectPaths(stateDir, dir);
  const place = { project: null, cwd: join(dir, "deep"), env: { CORRAL_STATE_DIR: stateDir } };
  for (const kind of ["fleets", "transcripts", "runs", "changesets", "grants"] as const)
    expect([kind, await namesOf(kind, place)]).toEqual([kind, []]);

  const write = async (path: string, text = "") => {
    await mkdir(join(path, ".."), { recursive: true });
    await writeFile(path, text);
  };
  await write(
    join(dir, "corral.yaml"),
    'version: 1\nworkers: "./jobs" # moved\npolicies: ./rules\nfleets: jobs/fleets\n',
  );
  await write(join(dir, "jobs/a.worker"));
  await write(join(dir, "jobs/fleets/nightly.yaml"));
  await write(join(dir, "jobs/.hidden.worker"));
  await write(join(dir, "workers/not-this.worker"));
  await write(join(dir, "rules/strict.yaml"));
  await mkdir(join(dir, "deep"));
  await write(join(paths.transcripts, "0123456789ab.jsonl"));
  await mkdir(join(paths.runs, "20260102T030405006Z-abcdefabcdef"), { recursive: true });
  await mkdir(join(statePaths(stateDir).changes, "fedcba987654"), { recursive: true });
  await mkdir(join(statePaths(stateDir).changes, "lock"));

  expect(await namesOf("workers", place)).toEqual(["a"]);
  expect(await namesOf("workers", { ...place, project: "../.." })).toEqual([]);
  expect(await namesOf("fleet_files", place)).toEqual(["nightly"]);
  expect(await namesOf("policies", place)).toEqual(expect.arrayContaining(["default", "strict", "untrusted"]));
  expect(await namesOf("transcripts", place)).toEqual(["0123456789ab"]);
  expect(await namesOf("runs", place)).toEqual(["abcdefabcdef"]);
  expect(await namesOf("changesets", place)).toEqual(["fedcba987654"]);
});

it("the fleets for completion are those of the journal: no server of a database is asked", async () => {
  const base = await mkdtemp(join(tmpdir(), "corral-names-"));
  onTestFinished(() => rm(base, { recursive: true }));
  const [dir, stateDir] = [join(base, "project"), join(base, "state")];
  await mkdir(dir);
  await writeFile(join(dir, "corral.yaml"), "version: 1\nqueue: postgres://nobody@127.0.0.1:1/none\n");
  const path = projectPaths(stateDir, dir).fleets;
  const place = { project: null, cwd: dir, env: { CORRAL_STATE_DIR: stateDir } };
  expect(await namesOf("fleets", place)).toEqual([]);
  await mkdir(join(path, ".."), { recursive: true, mode: 0o700 });
  await using journal = await FleetJournal.open(path, { self: "this test", isDead: () => false });
  const fleet = await loadedFleet(journal, 1);
  expect(await namesOf("fleets", place)).toEqual([fleet]);
});
