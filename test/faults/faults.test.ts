import { readdirSync } from "node:fs";
import { readFile } from "node:fs/promises";
import { join } from "node:path";
import { afterAll, beforeAll, describe, expect, it } from "vitest";
import type { RunEvent, RunResult } from "../../src/index.ts";
import { openFleetProject } from "../fleet/fleet-fixture.ts";
import { openProject, type ProjectFixture, sh, writable } from "../run/project-fixture.ts";
import { openSessionIn } from "../run/session/session-fixture.ts";
import { AT_LENGTH } from "../tiers/at-length.ts";
import { type FaultyEngine, openFaultyEngine } from "./faulty-engine.ts";
import { leftOf } from "./left.ts";

const SEED = Number(process.env.CORRAL_SEED ?? 20_261);
const RUNS = AT_LENGTH ? 500 : 20;
const ITEMS = AT_LENGTH ? 2000 : 20;
const COMMANDS = AT_LENGTH ? 100 : 12;
/** How many runs are on at once. */
const AT_ONCE = 8;

/** Each start of the worker adds a line to a file of its item; its output and its exit code say which it is. */
const SCRIPT = `n=$(cat); echo "$n" >> "/out/$n"; echo "out $n"; echo "err $n" >&2; exit $((n % 3 == 2))`;
const ITEM_SCRIPT = SCRIPT.replace('"/out/$n"', '"$(echo /out/*)/line"');
const WORKER = { command: sh(SCRIPT), sandbox: { zones: [writable("out")] } };

let engine: FaultyEngine;

beforeAll(async () => {
  engine = await openFaultyEngine({ seed: SEED, rate: 0.05, longestDelayMs: AT_LENGTH ? 1500 : 400 });
});

afterAll(async () => {
  console.log(`seed ${SEED}: ${engine.calls} calls, faults ${JSON.stringify(engine.injected)}`);
  await engine[Symbol.asyncDispose]();
});

describe(`while one call to the Engine in twenty is delayed, cut or garbled (seed ${SEED})`, () => {
  it(`each of ${RUNS} runs has a true status, and nothing is left`, { timeout: 3_600_000 }, async () => {
    const before = openFiles();
    await using project = await opened(() =>
      openProject({ workers: { w: WORKER }, zones: { out: "rw" } }, { engineEnv: engine.env }),
    );
    const waiting = Array.from({ length: RUNS }, (_, n) => n);
    const results = new Map<number, RunResult>();
    const lane = async (): Promise<void> => {
      for (let n = waiting.shift(); n !== undefined; n = waiting.shift())
        results.set(n, await project.run("w", { input: n }));
    };
    await Promise.all(Array.from({ length: AT_ONCE }, lane));

    expect(results.size).toBe(RUNS);
    for (const [n, result] of results) {
      const lines = await linesOf(project, n);
      if (result.status === "lost") {
        expect(result, why(project, result)).toMatchObject({ exitCode: null, signal: null });
        expect(lines.length).toBeLessThanOrEqual(1);
        continue;
      }
      const [status, exitCode] = n % 3 === 2 ? ["failed", 1] : ["succeeded", 0];
      const expected = { status, exitCode, stdout: `out ${n}\n`, stderr: `err ${n}\n` };
      expect(result, why(project, result)).toMatchObject(expected);
      expect(lines).toEqual([String(n)]);
    }
    const lost = [...results.values()].filter(({ status }) => status === "lost");
    console.log(`${RUNS} runs: ${lost.length} lost: ${tally(project.events)}`);
    expect(lost.length).toBeLessThan(RUNS / 10);
    expect(await leftOf(project.stateDir)).toEqual([]);
    await settled(() => expect(openFiles()).toBeLessThanOrEqual(before + 40));
  });

  it.each(["fresh", "scrubbed"] as const)(
    `a fleet of ${ITEMS} items (%s) loses none, runs none of those that succeed at once twice, and leaves nothing`,
    { timeout: 7_200_000 },
    async (reuse) => {
      const spec = { workers: { w: { ...WORKER, command: sh(ITEM_SCRIPT) } }, zones: { out: "rw" } } as const;
      await using fleet = await opened(() => openFleetProject(spec, { engineEnv: engine.env }));
      const items = Array.from({ length: ITEMS }, (_, n) => ({
        input: n,
        allowRead: [`/out/${n}`],
        allowWrite: [`/out/${n}`],
      }));
      const { summary, results } = await fleet.map({ reuse, concurrency: 6 }, items);

      expect(results.size).toBe(ITEMS);
      const { project } = fleet;
      const lost = [...results.values()].filter(({ status }) => status === "lost");
      for (const [key, result] of results) {
        if (result.status === "lost") continue;
        const n = Number(key);
        const lines = await linesOf(project, `${n}/line`);
        const [status, exitCode] = n % 3 === 2 ? ["failed", 1] : ["succeeded", 0];
        expect(result, JSON.stringify(result)).toMatchObject({ status, exitCode });
        expect(new Set(lines), key).toEqual(new Set(reuse === "fresh" || status === "succeeded" ? [key] : []));
        expect(lines.length).toBeLessThanOrEqual(reuse === "fresh" ? result.attempt : 1);
      }
      console.log(`${ITEMS} ${reuse} items: ${JSON.stringify(summary.byStatus)}, ${summary.durationMs} ms`);
      expect(lost.length).toBeLessThan(ITEMS / 100);
      expect(summary).toMatchObject({ state: "done", done: ITEMS });
      expect(await leftOf(project.stateDir)).toEqual([]);
    },
  );

  it(`each of ${COMMANDS} commands of a session has a true end, and nothing is left`, {
    timeout: 3_600_000,
  }, async () => {
    const worker = {
      command: ["true"],
      sandbox: { zones: [writable("out")] },
      shell_rules: { default: "pre_approved" },
    };
    const spec = { workers: { w: worker }, zones: { out: "rw" } } as const;
    const s = await opened(() => openSessionIn(spec, { engineEnv: engine.env }));
    const { project } = s;
    try {
      let lost = 0;
      for (let n = 0; n < COMMANDS; n += 1) {
        const script = `echo ${n} >> /out/${n}; echo "out ${n}"; echo "err ${n}" >&2; exit ${n % 3}`;
        const { status, exitCode, stdout, stderr } = await s.exec(script);
        const lines = await linesOf(project, n);
        if (status === "lost") {
          lost += 1;
          expect(exitCode).toBeNull();
          expect(lines.length).toBeLessThanOrEqual(1);
          continue;
        }
        expect({ exitCode, stdout, stderr, lines }).toEqual({
          exitCode: n % 3,
          stdout: `out ${n}\n`,
          stderr: `err ${n}\n`,
          lines: [String(n)],
        });
      }
      console.log(`${COMMANDS} commands: ${lost} lost: ${tally(project.events)}`);
      expect(lost).toBeLessThan(COMMANDS / 2);
    } finally {
      await s.close();
      const left = await leftOf(project.stateDir);
      await s[Symbol.asyncDispose]();
      expect(left).toEqual([]);
    }
  });
});

/** Opening a project may fail, with a reason; then it is opened again, as a user would. */
async function opened<Opened>(open: () => Promise<Opened>): Promise<Opened> {
  for (let attempt = 1; ; attempt += 1) {
    try {
      return await open();
    } catch (error) {
      expect((error as Error).message).toMatch(/engine|image/i);
      if (attempt === 5) throw error;
    }
  }
}

async function linesOf({ dir }: ProjectFixture, n: number | string): Promise<string[]> {
  const text = await readFile(join(dir, "out", String(n)), "utf8").catch(() => "");
  return text.split("\n").slice(0, -1);
}

function why({ events }: ProjectFixture, { run, status }: RunResult): string {
  const told = events.flatMap((event) => (event.type === "trouble" && event.run === run ? [event.detail] : []));
  return `${status}: ${told.join("; ")}`;
}

function tally(events: readonly RunEvent[]): string {
  const counts: Record<string, number> = {};
  for (const event of events)
    if (event.type === "trouble") {
      const detail = event.detail.replace(/[0-9a-f]{12,}|corral-\S+/g, "…");
      counts[detail] = (counts[detail] ?? 0) + 1;
    }
  return JSON.stringify(counts, null, 1);
}

function openFiles(): number {
  return readdirSync("/proc/self/fd").length;
}

async function settled(check: () => void): Promise<void> {
  await expect
    .poll(() => {
      try {
        check();
        return true;
      } catch {
        return false;
      }
    })
    .toBe(true);
}
