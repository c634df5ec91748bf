import { writeFile } from "node:fs/promises";
import { join } from "node:path";
import { setTimeout as wait } from "node:timers/promises";
import { describe, expect, it } from "vitest";
import { run } from "../../src/run/run.ts";
import { openProject, type ProjectFixture, sh } from "./project-fixture.ts";

/** The worker of each run that ended, in that order. */
function ends({ events }: ProjectFixture): string[] {
  return events.filter((event) => event.type === "ended").map((event) => event.worker);
}

const SLEEPER = { command: sh("echo up; exec sleep 60") };
const STUBBORN = { command: sh("trap '' TERM; echo up; while :; do sleep 0.2; done") };
const CALLS_SLEEPER = { command: sh("corral-call kid"), calls: ["kid"] };

describe("cancelling a run", () => {
  it("before it begins makes no cell", async () => {
    await using project = await openProject({ workers: { w: SLEEPER } });
    const result = await project.run("w", { signal: AbortSignal.abort() });
    expect(result).toMatchObject({ status: "cancelled", exitCode: null, error: { code: "CANCELLED" } });
    expect(project.events.map(({ type }) => type)).toEqual(["requested", "ended"]);
    expect(await project.traces()).toEqual([]);
  });

  it("at any moment of its cell's start leaves nothing behind", async () => {
    await using project = await openProject({ workers: { w: SLEEPER } });
    const { environment } = project.corral;
    const cancelled = [0, 10, 40, 80, 120, 200].map(async (delayMs) => {
      const cancel = new AbortController();
      const driver: typeof environment.driver = {
        ...environment.driver,
        start(request) {
          setTimeout(() => cancel.abort(), delayMs);
          return environment.driver.start(request);
        },
      };
      const worker = project.corral.project.workers.get("w");
      return worker && (await run({ worker, signal: cancel.signal }, { ...environment, driver }));
    });
    for (const result of await Promise.all(cancelled))
      expect(result).toMatchObject({ status: "cancelled", exitCode: null });
    expect(await project.traces()).toEqual([]);
  });

  it("while its worker runs keeps what it printed", async () => {
    await using project = await openProject({ workers: { w: SLEEPER } });
    const cancel = new AbortController();
    const running = project.run("w", { signal: cancel.signal });
    await project.printed("w", "up");
    cancel.abort();
    expect(await running).toMatchObject({ status: "cancelled", signal: "SIGTERM", stdout: "up\n" });
    expect(await project.traces()).toEqual([]);
  });

  it("cancels its whole tree, the youngest first", async () => {
    const boss = { command: sh("corral-call middle"), calls: ["middle"] };
    await using project = await openProject({ workers: { boss, middle: CALLS_SLEEPER, kid: STUBBORN } });
    const cancel = new AbortController();
    const running = project.run("boss", { signal: cancel.signal });
    await project.printed("kid", "up");
    cancel.abort();
    const kid = { worker: "kid", status: "cancelled", stdout: "up\n" };
    expect(await running).toMatchObject({
      status: "cancelled",
      calls: [{ worker: "middle", status: "cancelled", calls: [kid] }],
    });
    expect(ends(project)).toEqual(["kid", "middle", "boss"]);
    expect(await project.traces()).toEqual([]);
  });
});

describe("a called run", () => {
  it("does not outlive a caller that ends by itself", async () => {
    const boss = {
      command: sh("corral-call kid & while [ ! -e /flag/go ]; do sleep 0.1; done; echo done"),
      sandbox: { zones: [{ name: "flag" }] },
      calls: ["kid"],
    };
    await using project = await openProject({ workers: { boss, kid: SLEEPER }, zones: { flag: "ro" } });
    const running = project.run("boss");
    await project.printed("kid", "up");
    await writeFile(join(project.dir, "flag/go"), "");
    expect(await running).toMatchObject({
      status: "succeeded",
      stdout: "done\n",
      calls: [{ worker: "kid", status: "cancelled", stdout: "up\n" }],
    });
    expect(ends(project)).toEqual(["kid", "boss"]);
    expect(await project.traces()).toEqual([]);
  });

  it("does not outlive a caller that runs out of time, whatever its own limit", async () => {
    const boss = { ...CALLS_SLEEPER, limits: { timeout: "1500ms" } };
    await using project = await openProject({ workers: { boss, kid: SLEEPER } });
    const result = await project.run("boss");
    expect(result.status).toBe("timed_out");
    expect(result.calls[0]?.status).toMatch(/^(timed_out|cancelled)$/);
    expect(ends(project)).toEqual(["kid", "boss"]);
    expect(await project.traces()).toEqual([]);
  });

  it("is cancelled where its caller hangs up, which goes on", async () => {
    const script = `setsid corral-call kid & pid=$!
      while [ ! -e /flag/go ]; do sleep 0.1; done
      kill -KILL -$pid; while [ ! -e /flag/end ]; do sleep 0.1; done; echo went on`;
    const boss = { command: sh(script), sandbox: { zones: [{ name: "flag" }] }, calls: ["kid"] };
    await using project = await openProject({ workers: { boss, kid: SLEEPER }, zones: { flag: "ro" } });
    const running = project.run("boss");
    await project.printed("kid", "up");
    await writeFile(join(project.dir, "flag/go"), "");
    await expect.poll(() => ends(project)).toEqual(["kid"]);
    await writeFile(join(project.dir, "flag/end"), "");
    expect(await running).toMatchObject({ status: "succeeded", stdout: "went on\n", calls: [{ status: "cancelled" }] });
  });

  it("that still waits for its turn when its caller ends never gets a cell", async () => {
    const boss = {
      command: sh("for i in 1 2 3; do corral-call kid & done; while [ ! -e /flag/go ]; do sleep 0.1; done; exit 0"),
      sandbox: { zones: [{ name: "flag" }] },
      calls: ["kid"],
    };
    const yaml = { delegation: { max_parallel: 1 } };
    await using project = await openProject({ workers: { boss, kid: SLEEPER }, zones: { flag: "ro" }, yaml });
    const running = project.run("boss");
    await project.printed("kid", "up");
    // The other two have asked by now, or are cancelled when they do.
    await wait(300);
    await writeFile(join(project.dir, "flag/go"), "");
    const { calls } = await running;
    expect(calls.map(({ status }) => status)).toEqual(["cancelled", "cancelled", "cancelled"]);
    expect(project.events.filter(({ type, worker }) => type === "started" && worker === "kid")).toHaveLength(1);
    expect(await project.traces()).toEqual([]);
  });
});
