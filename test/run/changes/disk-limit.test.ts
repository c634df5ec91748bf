import { execFileSync } from "node:child_process";
import { readdirSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { describe, expect, it } from "vitest";
import { AT_LENGTH } from "../../tiers/at-length.ts";
import { type OpenFixtureOptions, openProject, type ProjectFixture, python, sh, writable } from "../project-fixture.ts";
import { openSessionIn } from "../session/session-fixture.ts";

const MEBIBYTE = 1024 ** 2;
const LIMIT = "16m";
/** What may be written until somebody looks, on a machine that others use as well. */
const OVERSHOOT = 40;

const asking = { name: "data", mode: "rw" };

type Way = readonly [string, typeof asking | ReturnType<typeof writable>, OpenFixtureOptions];
const WAYS: readonly Way[] = [
  ["directly", writable("data"), {}],
  ["into an overlay", asking, { approvalMode: "approve_all" }],
  ["into a copy", asking, { approvalMode: "approve_all", overlays: false }],
];

const spec = (command: readonly string[], zone: object, more: object = {}) => ({
  workers: { w: { image: "corral/python", command, sandbox: { zones: [zone] }, limits: { disk: LIMIT }, ...more } },
  zones: { data: "rw" } as const,
});

/** What the project and everything of Corral's own takes, in bytes. */
function taken({ dir, stateDir }: ProjectFixture): number {
  const text = execFileSync("du", ["-sB1", "--total", dir, stateDir], { encoding: "utf8" });
  return Number(/^(\d+)\ttotal$/m.exec(text)?.[1]);
}

const SMALL_FILES = sh("i=0; while :; do i=$((i + 1)); head -c 100000 /dev/zero > /data/f$i; done");
const EMPTY_FILES = python("import itertools\nfor i in itertools.count(): open(f'/data/{i}', 'w').close()");
const ONE_LARGE = ["dd", "if=/dev/zero", "of=/data/large", "bs=1M", "count=100"];
const HIDDEN = python(`
import itertools, os
held = []
for i in itertools.count():
    file = open(f"/data/{i}", "wb"); os.unlink(f"/data/{i}"); file.write(bytes(4 << 20)); file.flush(); held.append(file)`);
const MAPPED = python(`
import itertools, mmap, os
held = []
for i in itertools.count():
    file = open(f"/data/{i}", "wb+"); os.unlink(f"/data/{i}"); file.write(bytes(4 << 20)); file.flush()
    held.append(mmap.mmap(file.fileno(), 4096)); file.close()`);
const FAST = python("for i in range(8): open(f'/data/{i}', 'wb').write(bytes(8 << 20))");
const LOOPING = python(`
import itertools
for i in itertools.count():
    try: open(f"/data/{i % 2000}", "ab").write(b"x" * 65536)
    except OSError: pass`);

const MUCH = [
  ["many small files", SMALL_FILES],
  ["files that it deletes and keeps open", HIDDEN],
  ["more than it may, and ends at once", FAST],
  ["files without a byte", EMPTY_FILES],
  ["one large file", ONE_LARGE],
  ["files that it deletes and keeps mapped", MAPPED],
  ["to the end of all its files, by turns", LOOPING],
] as const;

/** The rest looks the same on all directories. */
const BY_FILE_SYSTEM = ["many small files", "more than it may, and ends at once", "files that it deletes and keeps"];

describe.each(WAYS)("a worker that writes %s", (way, zone, options) => {
  // A copy and the upper side of an overlay are directories like the project's own, on which all of them are tried.
  it.each(
    MUCH.filter(([what]) => AT_LENGTH || way === "directly" || BY_FILE_SYSTEM.some((one) => what.startsWith(one))),
  )("is ended for %s", async (_what, command) => {
    await using project = await openProject(spec(command, zone), options);
    const before = taken(project);
    const result = await project.run("w");
    expect(result).toMatchObject({ status: "disk_limit", error: { code: "DISK_LIMIT" } });
    expect(taken(project) - before).toBeLessThan(OVERSHOOT * 16 * MEBIBYTE);
    expect(await project.traces()).toEqual([]);
  });

  it("may write the same again and again, and what it may in all", async () => {
    const command = sh(`for i in $(seq 60); do head -c 3M /dev/zero > /data/same; done
      for i in 1 2 3; do head -c 4M /dev/zero > /data/f$i; done; echo done`);
    await using project = await openProject(spec(command, zone), options);
    expect(await project.run("w")).toMatchObject({ status: "succeeded", stdout: "done\n" });
  });
});

describe("a worker of a staged directory", () => {
  it("is ended for touching more of it than it may write, since the kernel copies each file for it", async () => {
    const command = sh("for f in /data/*; do touch $f; done; sleep 20; echo survived");
    await using project = await openProject(spec(command, asking), { approvalMode: "approve_all" });
    for (let index = 0; index < 4; index++)
      writeFileSync(join(project.dir, `data/f${index}`), Buffer.alloc(8 * MEBIBYTE, 1));
    execFileSync("chown", ["-R", "65532:65532", join(project.dir, "data")]);
    expect(await project.run("w")).toMatchObject({ status: "disk_limit", stdout: "" });
  });

  it("that is ended for it has nothing applied", async () => {
    await using project = await openProject(spec(FAST, asking), { approvalMode: "approve_all" });
    expect(await project.run("w")).toMatchObject({ status: "disk_limit" });
    expect(readdirSync(join(project.dir, "data"))).toEqual([]);
  });
});

describe("a called run", () => {
  it.each([
    ["directly", writable("data")],
    ["on its own side", asking],
  ])("is ended for what it writes %s, and its caller for what all that it calls write", async (_, zone) => {
    const workers = {
      boss: {
        command: sh("corral-call kid > /dev/null"),
        calls: ["kid"],
        sandbox: { zones: [zone] },
        limits: { disk: LIMIT },
      },
      kid: { ...spec(SMALL_FILES, zone).workers.w, limits: { disk: "8m" } },
      // Its third call is too much. How soon that is seen depends on how often the disk is looked at.
      many: {
        command: sh("for i in $(seq 15); do corral-call part $i > /dev/null; done; echo survived"),
        calls: ["part"],
        sandbox: { zones: [zone] },
        limits: { disk: LIMIT },
      },
      part: {
        ...spec(sh("head -c 7M /dev/urandom > /data/$(cat)"), zone).workers.w,
        limits: { disk: "8m" },
      },
    };
    await using project = await openProject({ workers, zones: { data: "rw" } }, { approvalMode: "approve_all" });
    const boss = await project.run("boss");
    expect(boss.calls).toMatchObject([{ status: "disk_limit" }]);
    const many = await project.run("many");
    expect(many).toMatchObject({ status: "disk_limit", stdout: "" });
    expect(many.calls.length).toBeLessThan(15);
  });
});

describe("a command of a session", () => {
  const session = (zone: object) =>
    openSessionIn(
      { ...spec(["true"], zone, { shell_rules: { default: "pre_approved" } }) },
      { approvalMode: "approve_all" },
    );

  it.each([
    ["directly", writable("data")],
    ["on its side", asking],
  ])("is ended for what it writes %s, and so is what it left running", async (_, zone) => {
    await using s = await session(zone);
    expect(await s.exec("i=0; while :; do i=$((i+1)); head -c 100000 /dev/zero > /data/f$i; done")).toMatchObject({
      status: "disk_limit",
    });
    await s.exec("true").catch(() => null);
    expect(await s.tool("exec", { command: "echo more > /data/more" })).toMatchObject({
      ok: false,
      code: "DISK_LIMIT",
    });
    const again = await session(zone);
    await using _again = again;
    const left = "(i=0; while :; do i=$((i+1)); head -c 100000 /dev/zero > /data/f$i; done) > /dev/null 2>&1 &";
    expect(await again.exec(left)).toMatchObject({ status: "succeeded" });
    await expect
      .poll(() => again.tool("exec", { command: "true" }))
      .toMatchObject({
        ok: false,
        code: "DISK_LIMIT",
      });
  });

  it("is ended for what it writes faster than anybody looks, and the limit is one for all commands together", async () => {
    await using s = await session(writable("data"));
    expect(await s.exec("for i in 1 2 3 4 5 6; do head -c 8M /dev/zero > /data/f$i; done")).toMatchObject({
      status: "disk_limit",
    });
    await using t = await session(writable("data"));
    const statuses: string[] = [];
    for (let index = 0; index < 6; index++) {
      const answer = await t.tool("exec", {
        command: `head -c 6M /dev/zero > /data/f${index}; kill -9 $PPID`,
        timeout_ms: 5000,
      });
      statuses.push(answer.ok ? String((answer.data as { status: string }).status) : answer.code);
    }
    expect(statuses.slice(0, 2)).not.toContain("disk_limit");
    expect(statuses.slice(3)).toEqual(["DISK_LIMIT", "DISK_LIMIT", "DISK_LIMIT"]);
    const usage = execFileSync("du", ["-sm", join(t.project.dir, "data")], { encoding: "utf8" });
    expect(Number.parseInt(usage, 10)).toBeLessThan(32);
    expect(await t.tool("delete_file", { path: "/data/f0" })).toMatchObject({ ok: true });
    expect(await t.tool("delete_file", { path: "/data/f1" })).toMatchObject({ ok: true });
    expect(await t.exec("echo fine")).toMatchObject({ status: "succeeded", stdout: "fine\n" });
  });
});
