import { readdir, readFile } from "node:fs/promises";
import { join } from "node:path";
import { setTimeout as wait } from "node:timers/promises";
import { expect } from "vitest";
import { FleetJournal } from "../../src/fleet/journal/journal.ts";
import type { Reuse } from "../../src/fleet/model/item.ts";
import { projectPaths } from "../../src/state/state-dir.ts";
import { type CliProject, cliProject, type Outcome, sh } from "../cli/cli-project.ts";
import { writable } from "../run/project-fixture.ts";

/** A fleet that one process of the command line after another goes on with. */
export interface KilledFleet extends AsyncDisposable {
  readonly project: CliProject;
  /** Begins it, or goes on with it. */
  start(): Promise<ReturnType<CliProject["start"]>>;
  /** Of the newest fleet in the journal; null where there is none yet. */
  fleet(): Promise<Standing | null>;
  /** Until so many items are done, or its process is gone. */
  done(count: number): Promise<void>;
  /** Every item has succeeded, once and rightly, and nothing is left of any attempt. */
  expectWhole(outcomes: readonly Outcome[]): Promise<void>;
}

export interface Standing {
  readonly id: string;
  readonly state: string;
  readonly done: number;
}

export interface KilledFleetOptions {
  readonly reuse: Reuse;
  readonly items: number;
  readonly concurrency: number;
  readonly env?: Readonly<Record<string, string>>;
  /** Seconds that each item takes at least. */
  readonly seconds?: number;
}

const LOOK_MS = 20;

export async function killedFleet(options: KilledFleetOptions): Promise<KilledFleet> {
  const { reuse, items, concurrency, env = {}, seconds = 0.05 } = options;
  const script = `read -r x < /attachments/in; sleep ${seconds}; echo "$x" > "$(echo /text/*)/out"; echo "did $x"`;
  const keys = Array.from({ length: items }, (_, index) => String(index).padStart(4, "0"));
  const project = await cliProject({
    yaml: {
      version: 1,
      policy: "batch",
      sandbox: { mode: "direct", zones: { text: { path: "text", mode: "rw" }, inbox: { path: "inbox", mode: "ro" } } },
    },
    workers: {
      w: { command: sh(script), sandbox: { zones: [writable("text")] }, limits: { memory: "64m", timeout: "60s" } },
    },
    folders: ["text"],
    files: Object.fromEntries(keys.map((key) => [`inbox/${key}`, `document ${key}\n`])),
  });
  const journalOf = () =>
    FleetJournal.open(projectPaths(project.stateDir, project.dir).fleets, {
      self: "a test that looks",
      isDead: () => false,
    });
  const fleet: KilledFleet["fleet"] = async () => {
    await using journal = await journalOf();
    const [newest] = await journal.list(1);
    return newest === undefined ? null : { id: newest.id, state: newest.state, done: newest.counts.done };
  };
  let ended = true;
  return {
    project,
    fleet,
    async start() {
      const standing = await fleet().catch(() => null);
      const each = [
        "--attach",
        "{path}=in",
        "--allow-read",
        "/text/{stem}",
        "--allow-write",
        "/text/{stem}",
        "--key",
        "{stem}",
      ];
      const how = ["--reuse", reuse, "--concurrency", String(concurrency), "--no-cache"];
      const args =
        standing === null ? ["map", "w", "--over", "inbox/*", ...each, ...how] : ["fleet", "resume", standing.id];
      const started = project.start([...args, "--json"], { env });
      ended = false;
      void started.ended.finally(() => {
        ended = true;
      });
      return started;
    },
    async done(count) {
      while (!ended && ((await fleet().catch(() => null))?.done ?? -1) < count) await wait(LOOK_MS);
    },
    async expectWhole(outcomes) {
      await using journal = await journalOf();
      const standing = await fleet();
      expect(standing).toMatchObject({ state: "done", done: items });
      const results = await Array.fromAsync(journal.results(standing?.id ?? ""));
      expect(results.map(({ key }) => key)).toEqual(keys);
      for (const { key, status, output } of results)
        expect([key, status, output]).toEqual([key, "succeeded", `did document ${key}\n`]);
      for (const key of keys)
        expect(await readFile(join(project.dir, "text", key, "out"), "utf8")).toBe(`document ${key}\n`);
      const written = await readdir(join(project.dir, "text"), { recursive: true });
      expect(written.length).toBe(2 * items);
      const told = outcomes.flatMap(({ stdout }) => stdout.split("\n").filter((line) => line.endsWith("}")));
      const once = new Set(told.map((line) => (JSON.parse(line) as { key: string }).key));
      expect(told.length).toBe(once.size);
      await expectNothingLeft(project, env);
    },
    [Symbol.asyncDispose]: () => project[Symbol.asyncDispose](),
  };
}

async function expectNothingLeft(project: CliProject, env: Readonly<Record<string, string>>): Promise<void> {
  const [running, reaped] = [
    await project.corral(["ps", "--json"], { env }),
    await project.corral(["reap", "--json"], { env }),
  ];
  expect(JSON.parse(running.stdout)).toEqual([]);
  expect(JSON.parse(reaped.stdout)).toMatchObject({ cells: [], volumes: [], directories: [] });
  expect(await readdir(join(project.stateDir, "live"))).toEqual([]);
  expect(await readFile("/proc/self/mountinfo", "utf8")).not.toContain(project.stateDir);
}

/** Goes on until its end. */
export async function toItsEnd(fleet: KilledFleet): Promise<Outcome> {
  const outcome = await (await fleet.start()).ended;
  if (outcome.status !== 0) throw new Error(`it did not come to its end: ${JSON.stringify(outcome)}`);
  return outcome;
}
