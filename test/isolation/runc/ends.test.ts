import { execFileSync } from "node:child_process";
import { chmod, mkdir, readdir, readFile, rename, rmdir, symlink, writeFile } from "node:fs/promises";
import { join } from "node:path";
import { afterAll, beforeAll, describe, expect, it } from "vitest";
import type { Plan } from "../../../src/isolation/plan/plan.ts";
import type { Cell } from "../../../src/isolation/port/cell.ts";
import { mount } from "../../sandbox/sandboxes.ts";
import { type CellAsked, cellOf } from "../engine/engine.ts";
import { openRunc, type Runc } from "./runc.ts";

let runc: Runc;
beforeAll(async () => {
  runc = await openRunc();
});
afterAll(() => runc[Symbol.asyncDispose]());

interface Working {
  readonly cell: Cell;
  readonly plan: Plan;
  readonly said: () => string;
}

/** A cell whose worker runs a script, and has said `ready` if the script does. */
async function working(script: string, asked: Partial<CellAsked> = {}): Promise<Working> {
  const { plan, pins } = await runc.plan({ command: ["sh", "-c", script], ...asked });
  let text = "";
  const onOutput = (_: string, chunk: Buffer): void => {
    text += chunk;
  };
  const cell = cellOf(await runc.driver.start({ plan, pins, onOutput, signal: new AbortController().signal }));
  cell.release(Buffer.alloc(0));
  if (script.includes("ready")) await expect.poll(() => text).toContain("ready");
  return { cell, plan, said: () => text };
}

/** The host's ids of the processes whose command line contains a text. */
function processesWith(text: string): number[] {
  const lines = execFileSync("ps", ["-eo", "pid,args"], { encoding: "utf8" }).split("\n");
  return lines
    .filter((line) => line.includes(text) && !line.includes("ps -eo"))
    .map((line) => Number.parseInt(line, 10));
}

describe("the end of a cell of runc", () => {
  it.each([0, 1, 2, 125, 126, 127, 255])(
    "is the worker's own where it exits with %i, as runc does too",
    async (code) => {
      const { cell, plan } = await working(`exit ${code}`);
      expect(await cell.exit).toMatchObject({ kind: "exited", code, outOfMemory: false });
      await cell[Symbol.asyncDispose]();
      expect(await runc.traces(plan.run)).toEqual([]);
    },
  );

  it("tells of a kill for memory, of the worker and of a child, by the kernel's own count", async () => {
    for (const [script, code] of [
      ["exec tail /dev/zero", 137],
      ["tail /dev/zero; exit 0", 0],
    ] as const) {
      const { cell } = await working(script);
      await using _ = cell;
      expect(await cell.exit).toMatchObject({ kind: "exited", code, outOfMemory: true });
    }
    const { cell } = await working("kill -KILL $$");
    await using _ = cell;
    expect(await cell.exit).toMatchObject({ kind: "exited", code: 137, outOfMemory: false });
  });

  it("is lost if runc is killed from outside, and no process of the cell stays", async () => {
    const { cell, plan } = await working("echo ready; exec sleep 1000");
    await using _ = cell;
    const [pid] = processesWith(cell.id);
    process.kill(pid ?? 0, "SIGKILL");
    expect(await cell.exit).toEqual({ kind: "lost", reason: "runc was ended from outside (Killed)" });
    await cell[Symbol.asyncDispose]();
    expect(await runc.traces(plan.run)).toEqual([]);
  });

  it("is lost if the control group is taken away before it could be read", async () => {
    const { cell } = await working("echo ready; exec sleep 0.5");
    await using _ = cell;
    const taken = setInterval(() => {
      void rmdir(`/sys/fs/cgroup/memory/corral/${cell.id}`).catch(() => {});
    }, 0);
    const exit = await cell.exit;
    clearInterval(taken);
    // The removal and the reading race: either is told as what it is.
    if (exit.kind === "lost") expect(exit.reason).toContain("control group");
    else expect(exit).toMatchObject({ code: 0, outOfMemory: false });
  });

  it("is a kill if the first process is killed from outside, and is measured to its last moment", async () => {
    const { cell, plan } = await working(
      "echo ready; i=0; while [ $i -lt 300000 ]; do i=$((i+1)); done; echo ready2; sleep 1000",
    );
    await using _ = cell;
    const pids = (await readFile(`/sys/fs/cgroup/pids/corral/${cell.id}/cgroup.procs`, "utf8")).split("\n");
    process.kill(Number(pids[0]), "SIGKILL");
    const exit = await cell.exit;
    expect(exit).toMatchObject({ kind: "exited", code: 137, outOfMemory: false });
    expect(exit.kind === "exited" && (exit.usage.cpuMs ?? 0) > 0).toBe(true);
    expect(plan.run).not.toBe("");
  });

  it("takes along processes in sessions of their own that ignore everything", async () => {
    const { cell, plan } = await working(
      "(trap '' TERM INT HUP; setsid sleep 4321 &) ; (setsid setsid sleep 4321 &); echo ready; sleep 4321",
    );
    await cell.kill("SIGKILL");
    expect(await cell.exit).toMatchObject({ kind: "exited", code: 137 });
    expect(processesWith("sleep 4321")).toEqual([]);
    await cell[Symbol.asyncDispose]();
    expect(await runc.traces(plan.run)).toEqual([]);
  });
});

describe("the root file system of a cell", () => {
  it("has nothing on the disk, and is read-only under every policy: what a worker may write of it is mounted", async () => {
    const { untrusted } = runc;
    const policy = { ...untrusted, hardening: { ...untrusted.hardening, readOnlyRoot: false } };
    const work = await working("echo written > /var/tmp/made; cat /var/tmp/made; echo ready; sleep 1000", { policy });
    await using cell = work.cell;
    expect(work.said()).not.toContain("written\n");
    expect(await readdir(join(runc.paths.cells, work.plan.run))).toEqual(["labels.json"]);
    await cell[Symbol.asyncDispose]();
    expect(await runc.traces(work.plan.run)).toEqual([]);
  });
});

describe("a start that fails", () => {
  const wrong = "#!/bin/sh\n";
  it.each([
    ["runc itself is missing", null, /could not be started|not found|No such file|ENOENT/],
    ["runc fails at once", `${wrong}echo '{"level":"error","msg":"no luck"}' >&2; exit 1\n`, /no luck/],
    [
      "runc fails after it made the cell",
      // By its control group, since no time is right on every machine.
      `${wrong}"/usr/sbin/runc" "$@" & for id; do :; done
until [ -e "/sys/fs/cgroup/pids/corral/$id" ] || [ -e "/sys/fs/cgroup/corral/$id" ]; do :; done; kill -9 $!; exit 1\n`,
      /ended before its worker/,
    ],
    ["runc is silent", `${wrong}exit 0\n`, /ended before its worker/],
  ])("leaves nothing if %s", async (_, text, reason) => {
    const path = join(runc.dir, `runc-${Math.random()}`);
    if (text !== null) await writeFile(path, text);
    if (text !== null) await chmod(path, 0o755);
    const { plan, pins } = await runc.plan({ command: ["true"] });
    const driver = runc.driverWith({ programs: { runtime: { kind: "runc", path }, init: "/usr/bin/docker-init" } });
    const start = driver.start({ plan, pins, onOutput: () => {}, signal: new AbortController().signal });
    await expect(start).rejects.toThrow(reason);
    expect(await runc.traces(plan.run)).toEqual([]);
    expect((await readdir(runc.paths.cells)).filter((name) => name.startsWith("."))).toEqual([]);
  });

  it("leaves nothing if the image or the init is gone, or a layer is", async () => {
    for (const more of [
      { images: { use: async () => null } },
      { images: { use: async () => ({ dir: "/no", layers: ["such"], mark: "", [Symbol.dispose]: () => {} }) } },
      { programs: { runtime: { kind: "runc" as const, path: "/usr/sbin/runc" }, init: "/no/such/init" } },
    ]) {
      const { plan, pins } = await runc.plan({ command: ["true"] });
      const request = { plan, pins, onOutput: () => {}, signal: new AbortController().signal };
      const outcome = await runc
        .driverWith(more)
        .start(request)
        .catch((error: Error) => error.name);
      expect(outcome === "EngineTrouble" || (outcome as { ok: boolean }).ok === false).toBe(true);
      expect(await runc.traces(plan.run)).toEqual([]);
    }
  });
});

describe("a mount source that is swapped after it was pinned", () => {
  it.each(["another directory", "a link to one", "nothing"])(
    "for %s refuses the cell, and nothing is made there",
    async (what) => {
      const base = await runc.folder(`swap-${what.length}`);
      const granted = join(base, "granted");
      const outside = join(base, "outside");
      for (const dir of [granted, join(granted, "inner"), outside]) await mkdir(dir, { mode: 0o777 });
      const mounts = [
        mount("/data", "ro", { host: granted }),
        mount("/data/inner", "ro", { host: join(granted, "inner") }),
      ];
      const { plan, pins } = await runc.plan({ command: ["true"], mounts });
      await rename(granted, join(base, "moved"));
      if (what === "another directory") await rename(outside, granted);
      if (what === "a link to one") await symlink(outside, granted);
      const start = await runc.driver.start({ plan, pins, onOutput: () => {}, signal: new AbortController().signal });
      expect(start).toMatchObject({ ok: false, violations: [{ code: "MOUNT_SOURCE_REFUSED" }] });
      expect(await runc.traces(plan.run)).toEqual([]);
      const where = what === "another directory" ? granted : outside;
      expect(await readdir(where)).toEqual([]);
    },
  );
});
