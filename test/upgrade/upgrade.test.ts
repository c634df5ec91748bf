import { execFileSync } from "node:child_process";
import { mkdir, readdir, rm } from "node:fs/promises";
import { join } from "node:path";
import { afterAll, beforeAll, describe, expect, it } from "vitest";
import { withinProcess } from "../cli/within-process.ts";

/** Where `make.sh` made it: the path of a project is part of what identifies it. */
const PLACE = "/var/tmp/corral-upgraded";
const cwd = join(PLACE, "project");
const RUN = "3ec3f4ff11dd";
const AGENT = "1139b8179ec9";
const FLEET = "23c0a602dc7d";

const corral = (...args: string[]) =>
  withinProcess(args, {
    cwd,
    env: { ...process.env, NO_COLOR: "1", CORRAL_STATE_DIR: join(PLACE, "state") },
    stdin: "",
  });
const json = async (...args: string[]) => JSON.parse((await corral(...args, "--json")).stdout);

beforeAll(async () => {
  await rm(PLACE, { recursive: true, force: true });
  await mkdir(PLACE);
  const archive = join(import.meta.dirname, "2026-11-27.tar.gz");
  execFileSync("tar", ["--extract", "--same-permissions", "--file", archive, "--directory", PLACE]);
});
afterAll(() => rm(PLACE, { recursive: true, force: true }));

describe("what the version of 2026-11-27 wrote", () => {
  it("is a project without a mistake, and a trail that is whole", async () => {
    expect(await json("check")).toMatchObject({ ok: true, problems: [], failing: [], workers: 3 });
    expect(await json("audit", "--verify")).toMatchObject({ ok: true });
  });

  it("is a history that can be read: runs with what they printed, and the conversation of an agent", async () => {
    expect((await json("runs", "ls")).runs).toMatchObject([
      { id: AGENT, worker: "clerk", status: "succeeded" },
      { id: RUN, worker: "hello", status: "denied" },
    ]);
    expect(await corral("runs", "logs", RUN)).toMatchObject({ status: 0, stdout: "hello\n", stderr: "problem\n" });
    expect((await corral("transcripts", "show", AGENT)).stdout).toContain("There are three files.");
  });

  it("is a changeset that is shown, and not applied from a copy", async () => {
    expect(await json("changes", "ls")).toMatchObject([{ id: RUN, worker: "hello" }]);
    expect((await corral("changes", "show", RUN)).stdout).toMatch(/create +\/out\/kept\.txt/);
    const applied = await corral("changes", "apply", RUN, "--yes");
    expect([applied.status, applied.stdout + applied.stderr]).toEqual([
      expect.any(Number),
      expect.stringContaining("its directory was replaced since the run began"),
    ]);
    expect(applied.status).not.toBe(0);
    expect(await readdir(join(cwd, "out"))).toEqual([]);
    expect(await corral("changes", "discard", RUN, "--yes")).toMatchObject({ status: 0 });
  });

  it("is a fleet whose results are there, and which goes on", async () => {
    expect((await json("fleet", "ls")).fleets).toMatchObject([
      { id: FLEET, state: "done", counts: { done: 3, failed: 1 } },
    ]);
    const results = (await corral("fleet", "results", FLEET, "--jsonl")).stdout.trim().split("\n");
    expect(results.map((line) => JSON.parse(line)).map(({ key, status }) => [key, status])).toEqual([
      ["a.txt", "succeeded"],
      ["b.txt", "succeeded"],
      ["bad.txt", "failed"],
    ]);
    const retried = await corral("fleet", "retry", FLEET, "--failed");
    expect([retried.status, retried.stdout + retried.stderr]).toEqual([1, expect.stringContaining("bad.txt failed")]);
    const [, , again] = (await corral("fleet", "results", FLEET, "--jsonl")).stdout.trim().split("\n");
    expect(JSON.parse(again ?? "")).toMatchObject({ key: "bad.txt", status: "failed", attempt: 2 });
    expect(await json("audit", "--verify")).toMatchObject({ ok: true });
  });
});
