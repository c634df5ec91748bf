import { randomBytes } from "node:crypto";
import fs from "node:fs";
import { chmod, mkdir, mkdtemp, rm, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { afterAll, beforeAll, describe, expect, it } from "vitest";
import { type Delegated, delegatedGroups, removeGroups } from "../../../src/isolation/bwrap/groups.ts";
import { groundHere } from "../../../src/isolation/bwrap/open.ts";
import { HIERARCHIES } from "../../../src/isolation/kernel/control-group.ts";
import { absence, openBwrapHere, USER } from "./bwrap.ts";

const absent = await absence();
const hasVersion1 = fs.existsSync("/sys/fs/cgroup/memory/memory.memsw.limit_in_bytes");

/** Only root can give a user a group of version 1. */
describe.skipIf(absent !== null || process.getuid?.() !== 0 || !hasVersion1)(
  "a cell of bubblewrap with control groups",
  () => {
    const name = `corral-test-${randomBytes(4).toString("hex")}`;
    const groups: Delegated = {
      parents: Object.fromEntries(
        HIERARCHIES.map((each) => [each, `/sys/fs/cgroup/${each}/${name}`]),
      ) as Delegated["parents"],
      version: 1,
    };
    let here: Awaited<ReturnType<typeof openBwrapHere>>;
    beforeAll(async () => {
      for (const dir of Object.values(groups.parents)) {
        await mkdir(dir, { recursive: true });
        fs.chownSync(dir, USER.uid, USER.gid);
      }
      here = await openBwrapHere(groups);
    });
    afterAll(async () => {
      await here[Symbol.asyncDispose]();
      // Each hierarchy may be there by more names.
      for (const dir of Object.values(groups.parents)) if (fs.existsSync(dir)) fs.rmdirSync(dir);
    });

    const start = async (command: readonly string[], driver = here.driver) => {
      const { plan, pins } = await here.plan({ command, policy: here.untrusted });
      const signal = new AbortController().signal;
      return { plan, started: await driver.start({ plan, pins, signal, onOutput: () => {} }) };
    };

    it("has the memory of all of its processes together, and says what it used", async () => {
      // Each has less than the limit.
      const half = Math.ceil((here.untrusted.defaultLimits.memoryBytes * 0.6) / 1024 ** 2);
      const program = `fork; my @kept = map { "x" x 2**20 } 1 .. ${half}; sleep 20`;
      const { plan, started } = await start(["perl", "-e", program]);
      if (!started.ok) throw new Error(JSON.stringify(started.violations));
      const { cell } = started;
      const { actual, requested, socketMemory } = cell.enforcement;
      expect(actual).toEqual(requested);
      expect([actual.memory, actual.memoryAndSwap, actual.cpus, actual.pids, socketMemory]).toEqual([
        ...[String(plan.limits.memoryBytes), String(plan.limits.memoryBytes)],
        ...[plan.limits.cpus.toFixed(2), String(plan.limits.pids), "counted"],
      ]);
      const group = `${groups.parents.memory}/${cell.id}`;
      const killed = (): boolean => /oom_kill [1-9]/.test(fs.readFileSync(`${group}/memory.oom_control`, "latin1"));
      cell.release(Buffer.alloc(0));
      await expect.poll(killed, { timeout: 30_000 }).toBe(true);
      await cell.kill("SIGKILL");
      expect(await cell.exit).toMatchObject({ kind: "exited", usage: { memoryBytesPeak: plan.limits.memoryBytes } });
      await cell[Symbol.asyncDispose]();
      expect(Object.values(groups.parents).filter((dir) => fs.existsSync(join(dir, cell.id)))).toEqual([]);
    });

    it("is told from a cell that was ended for its memory", async () => {
      const { started } = await start(["perl", "-e", 'my @kept = map { "x" x 2**20 } 1 .. 4096']);
      if (!started.ok) throw new Error(JSON.stringify(started.violations));
      await using cell = started.cell;
      cell.release(Buffer.alloc(0));
      expect(await cell.exit).toMatchObject({ kind: "exited", code: 137, outOfMemory: true });
    });

    it("is refused if it did not come into them", async () => {
      const programs = await groundHere(USER);
      const bwrap = join(here.dir, "bwrap");
      const procs = `${groups.parents.pids}/cgroup.procs`;
      fs.chownSync(procs, USER.uid, USER.gid);
      const leave = `if ($ARGV[0] eq '--args') { open(my $f, '>', '/host${procs}') or die; print $f 0; close $f or die }`;
      await writeFile(bwrap, `#!/usr/bin/perl\n${leave}\nexec '${programs.bwrap}', @ARGV;\n`);
      await chmod(bwrap, 0o755);
      const { started } = await start(["true"], here.driverWith({ ...programs, bwrap }));
      expect(started).toMatchObject({ ok: false, violations: [{ code: "ENFORCEMENT_MISSING" }] });
      expect(JSON.stringify(started)).toContain("control group: planned its own, found another");
    });
  },
);

describe("the group that Corral runs in", () => {
  let root: string;
  beforeAll(async () => {
    root = await mkdtemp(join(tmpdir(), "cg-"));
  });
  afterAll(() => rm(root, { recursive: true }));

  const found = (own: string, looksOnly = false) => delegatedGroups(looksOnly, { root, own, pid: process.pid });

  it("is one directory for each hierarchy of version 1, which the user must be able to write", async () => {
    const own = "8:pids:/\n4:memory:/a/b\n3:cpu,cpuacct:/c\n1:name=systemd:/\n";
    expect(found(own)).toEqual({ why: `this user may make no control group in ${join(root, "memory/a/b")}` });
    for (const dir of ["pids", "memory/a/b", "cpu/c", "cpuacct/c"]) await mkdir(join(root, dir), { recursive: true });
    const parents = { pids: "pids/", memory: "memory/a/b", cpu: "cpu/c", cpuacct: "cpuacct/c" };
    const expected = Object.fromEntries(Object.entries(parents).map(([name, dir]) => [name, join(root, dir)]));
    expect(found(own)).toEqual({ parents: expect.objectContaining(expected), version: 1 });
  });

  it("is refused with version 2 if it is not delegated, lacks a limit or has other processes", async () => {
    const dir = join(root, "user/run-1.scope");
    await mkdir(dir, { recursive: true });
    await writeFile(join(root, "cgroup.controllers"), "cpu memory pids\n");
    const why = (own = "0::/user/run-1.scope\n"): string => (found(own) as { why: string }).why;
    expect(why()).toMatch(/may not write .*cgroup\.procs.*Delegate=yes/);
    for (const name of ["cgroup.procs", "cgroup.subtree_control"]) await writeFile(join(dir, name), "");
    await writeFile(join(dir, "cgroup.controllers"), "memory pids\n");
    expect(why()).toMatch(/has no cpu\. With systemd/);
    await writeFile(join(dir, "cgroup.controllers"), "cpu memory pids\n");
    expect(found("0::/user/run-1.scope\n", true)).toMatchObject({ version: 2 });
    expect(fs.readdirSync(dir)).not.toContain("corral-itself");
    // A plain file takes the words and gives no limits, as the kernel does if there are other processes.
    expect(why()).toMatch(/other processes are in/);
    expect(fs.readFileSync(join(dir, "corral-itself/cgroup.procs"), "utf8")).toBe(String(process.pid));
    expect(fs.readFileSync(join(dir, "cgroup.subtree_control"), "utf8")).toBe("+cpu +memory +pids");
    await writeFile(join(dir, "cgroup.subtree_control"), "cpu memory pids\n");
    // Corral is in the inner one from then on.
    for (const own of ["0::/user/run-1.scope\n", "0::/user/run-1.scope/corral-itself\n"])
      expect(found(own)).toEqual({ parents: { memory: dir, cpu: dir, cpuacct: dir, pids: dir }, version: 2 });
  });

  it("loses those of a cell whose owner has died, by the note in its folder", async () => {
    const [folder, group] = [join(root, "cell"), join(root, "group")];
    for (const dir of [folder, group]) await mkdir(dir);
    await writeFile(join(folder, "groups"), `${group}\n${join(root, "gone")}`);
    await removeGroups(folder);
    expect(fs.existsSync(group)).toBe(false);
    await removeGroups(join(root, "cell-without-a-note"));
  });
});
