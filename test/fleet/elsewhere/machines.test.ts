import { spawnSync } from "node:child_process";
import { mkdirSync, readdirSync, readFileSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { setTimeout as sleep } from "node:timers/promises";
import { describe, expect, it } from "vitest";
import { listCells } from "../../../src/operations/machine.ts";
import { PROGRAM } from "../../cli/program.ts";
import { serverPrograms, startServer } from "../postgres/server-fixture.ts";
import { isRoot, type Process, places, told, until } from "./work-processes.ts";

const ITEMS = 30;

describe.skipIf(serverPrograms() === null || !isRoot)("machines", () => {
  it("run every item of a fleet once, though one is killed and one stands still until its lease has ended", async () => {
    await using server = await startServer();
    using at = await places();
    const env = { CORRAL_QUEUE: server.url };
    writeFileSync(join(at.base, "items.jsonl"), Array.from({ length: ITEMS }, (_, n) => `{"n":${n}}\n`).join(""));
    // Files that no worker reads by itself.
    const own = (n: number): string => join(at.base, "private", `${n}.txt`);
    mkdirSync(join(at.base, "private"));
    for (let n = 0; n < ITEMS; n += 1) writeFileSync(own(n), `own ${n}\n`, { mode: 0o600 });
    // The owner makes the tables, and a role that may do nothing but this.
    expect(await at.start("home", ["fleet", "ls", "--json"], env).ended).toBe(0);
    const grants = spawnSync(process.execPath, [PROGRAM, "work", "--grants", "machine"], { encoding: "utf8" });
    const psql = ["-X", "-q", "-v", "ON_ERROR_STOP=1", server.url];
    const made = spawnSync(join(serverPrograms() ?? "", "psql"), psql, { input: grants.stdout, encoding: "utf8" });
    expect([made.status, made.stderr]).toEqual([0, ""]);
    const asMachine = { CORRAL_QUEUE: server.url.replace("postgres@", "machine@") };
    const work = (name: string) => at.start(name, ["work", "--name", name, "--concurrency", "2", "--json"], asMachine);
    const [one, two] = [work("one"), work("two")];
    const attach = ["--attach", `${at.base}/private/{n}.txt=own.txt`, "--attach", "/data/word"];
    const items = ["--manifest", join(at.base, "items.jsonl"), "--input", '{"n":"{n}"}', ...attach];
    const map = at.start("home", ["map", "up", ...items, "--concurrency", "0", "--machines", "--json"], env);
    const all = () => JSON.stringify([one.errors(), two.errors(), map.errors()]);

    /** Until it has just begun one more item, which takes 0.4 s: it has not delivered this one. */
    const begins = async (machine: Process): Promise<void> => {
      const before = told(machine, "started").length;
      await until(() => told(machine, "started").length > before, all, 5);
    };
    await until(() => told(one, "delivered").length >= 4 && told(two, "delivered").length >= 4, all);
    await begins(one);
    one.child.kill("SIGKILL");
    // What counts is what they were when the fleet was loaded.
    for (let n = 0; n < ITEMS; n += 1) writeFileSync(own(n), "changed since\n");
    await begins(two);
    two.child.kill("SIGSTOP");
    // Longer than a lease.
    await sleep(16_500);
    two.child.kill("SIGCONT");
    expect(await map.ended, all()).toBe(0);

    // Every result once, and every effect once.
    expect(map.lines.map(({ key, status }) => `${key} ${status}`).toSorted()).toEqual(
      Array.from({ length: ITEMS }, (_, n) => `${n} succeeded`).toSorted(),
    );
    expect(readdirSync(join(at.home, "out")).length).toBe(ITEMS);
    for (let n = 0; n < ITEMS; n += 1)
      expect(readFileSync(join(at.home, "out", `${n}.txt`), "utf8")).toBe(`HELLO\nown ${n}\nhello\n`);
    const audit = at.start("home", ["audit", "--type", "changes_applied", "--json"], env);
    await audit.ended;
    const applied = (audit.lines as { changes: { path: string }[] }[]).flatMap(({ changes }) => changes);
    expect(applied).toHaveLength(ITEMS);
    expect(new Set(applied.map(({ path }) => path)).size).toBe(ITEMS);

    // What stood still has lost its lease, says so, and takes part again. No item was taken from two machines.
    expect(told(two, "lost")).toHaveLength(1);
    expect(told(two, "joined")).toHaveLength(2);
    const late = [...told(two, "late"), ...told(two, "given_back")].map(({ key, attempt }) => ({
      before: attempt as number,
      counted: map.lines.find((line) => line.key === key)?.attempt as number,
    }));
    // The queue may have taken one whose answer came when it stood still already.
    for (const { before, counted } of late) expect(counted).toBeGreaterThanOrEqual(before);
    expect(
      late.some(({ before, counted }) => counted > before),
      all(),
    ).toBe(true);
    const taken = [...told(one, "delivered"), ...told(two, "delivered")].map(({ key }) => key);
    expect(new Set(taken).size).toBe(taken.length);

    two.child.kill("SIGTERM");
    expect(await two.ended, two.errors()).toBe(0);
    // The next process of the killed machine removes what that one left.
    const next = work("one");
    await until(
      () => told(next, "joined").length === 1,
      () => next.errors(),
    );
    next.child.kill("SIGTERM");
    expect(await next.ended, next.errors()).toBe(0);
    for (const name of ["home", "one", "two"])
      expect(await listCells({ stateDir: join(at.base, `state-${name}`), engineEnv: process.env })).toEqual([]);
  }, 180_000);
});
