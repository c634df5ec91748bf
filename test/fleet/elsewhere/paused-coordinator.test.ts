import { spawnSync } from "node:child_process";
import { globSync, readdirSync, readFileSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { setTimeout as sleep } from "node:timers/promises";
import { describe, expect, it } from "vitest";
import { serverPrograms, startServer } from "../postgres/server-fixture.ts";
import { isRoot, type Process, places, until } from "./work-processes.ts";

const ITEMS = 16;
/** So that neither coordinator can see that the other lives, as in containers: only the lease decides. */
const APART = ["unshare", "--pid", "--fork", "--mount-proc", "--kill-child"];

/** Not while it writes to the audit trail: then no other process can, and the fleet pauses. */
async function stopped({ child }: Process, stateDir: string): Promise<void> {
  for (;;) {
    child.kill("SIGSTOP");
    const stat = () => readFileSync(`/proc/${child.pid}/stat`, "utf8");
    await until(() => / \(.*\) T /.test(stat()), stat, 1);
    if (globSync(join(stateDir, "audit/*/lock")).length === 0) return;
    child.kill("SIGCONT");
    await sleep(5);
  }
}

describe.skipIf(serverPrograms() === null || !isRoot)("a coordinator that is stopped while its items run", () => {
  it("loses its fleet to another, and says so when it continues: each item has one result and one effect", async () => {
    await using server = await startServer();
    using at = await places();
    const env = { CORRAL_QUEUE: server.url };
    const sql = (text: string): string => {
      const words = ["-X", "-q", "-At", "-v", "ON_ERROR_STOP=1", "-c", text, server.url];
      const { status, stdout, stderr } = spawnSync(join(serverPrograms() ?? "", "psql"), words, { encoding: "utf8" });
      expect([status, stderr]).toEqual([0, ""]);
      return stdout.trim();
    };
    writeFileSync(join(at.base, "items.jsonl"), Array.from({ length: ITEMS }, (_, n) => `{"n":${n}}\n`).join(""));
    writeFileSync(join(at.base, "own.txt"), "own\n");
    const attach = ["--attach", `${at.base}/own.txt`, "--attach", "/data/word"];
    const items = ["--manifest", join(at.base, "items.jsonl"), "--input", '{"n":"{n}"}', ...attach];
    const first = at.start("home", ["map", "up", ...items, "--concurrency", "2", "--machines", "--json"], env);
    const one = at.start("one", ["work", "--name", "one", "--concurrency", "2", "--json"], env);
    const all = () => JSON.stringify([first.errors(), one.errors(), first.lines]);
    await until(() => first.lines.length >= 3, all, 5);
    await stopped(first, join(at.base, "state-home"));
    // As if it stood for longer than a lease.
    const fleet = sql("SELECT name FROM corral.fleets");
    sql("UPDATE corral.processes SET lease_until = 1 WHERE id = (SELECT owner FROM corral.fleets)");

    const resume = ["fleet", "resume", fleet, "--json"];
    const second = at.start("home", resume, env, APART);
    await until(
      () => second.lines.length >= 2,
      () => `${second.errors()} ${all()}`,
      5,
    );
    first.child.kill("SIGCONT");
    expect(await second.ended, second.errors()).toBe(0);
    expect(await first.ended, all()).not.toBe(0);
    expect(first.errors()).toContain("another process took over the fleet");

    const results = at.start("home", ["fleet", "results", fleet, "--jsonl"], env);
    expect(await results.ended, results.errors()).toBe(0);
    expect(results.lines.map(({ index, status }) => `${index} ${status}`).toSorted()).toEqual(
      Array.from({ length: ITEMS }, (_, n) => `${n} succeeded`).toSorted(),
    );
    expect(readdirSync(join(at.home, "out")).length).toBe(ITEMS);
    for (let n = 0; n < ITEMS; n += 1)
      expect(readFileSync(join(at.home, "out", `${n}.txt`), "utf8")).toBe("HELLO\nown\nhello\n");
    const audit = at.start("home", ["audit", "--type", "changes_applied", "--json"], env);
    await audit.ended;
    const applied = (audit.lines as { changes: { path: string }[] }[]).flatMap(({ changes }) => changes);
    expect(applied.map(({ path }) => path).toSorted()).toEqual(
      Array.from({ length: ITEMS }, (_, n) => `/out/${n}.txt`).toSorted(),
    );
    one.child.kill("SIGTERM");
    expect(await one.ended, one.errors()).toBe(0);
  }, 180_000);
});
