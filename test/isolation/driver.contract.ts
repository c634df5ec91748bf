import { randomBytes } from "node:crypto";
import { afterAll, beforeAll, describe, expect, it } from "vitest";
import type { Plan } from "../../src/isolation/plan/plan.ts";
import type { Cell } from "../../src/isolation/port/cell.ts";
import { type Driver, EngineTrouble } from "../../src/isolation/port/driver.ts";
import type { Maker } from "../../src/isolation/port/labels.ts";
import { currentOwner } from "../../src/state/owner.ts";
import type { Planned } from "./pinned-plan.ts";

/**
 * What the contract's workers do, whatever they are made of. `ignores-term` says `ready` once it does, and then it and
 * `waits` stay until they are ended; `waits` says `ready` as well.
 */
export const BEHAVIOURS = [
  "echoes-its-input",
  "prints-on-both",
  "counts-up",
  "exits-with-3",
  "dies-of-segv",
  "waits",
  "ignores-term",
] as const;
export type Behaviour = (typeof BEHAVIOURS)[number];

export interface DriverHarness extends AsyncDisposable {
  readonly maker: Maker;
  /** An orchestrator at the harness's engine; all of them share it. */
  driverOf(maker: Maker): Driver;
  /** A plan, with one mount at `/data`, of a worker that behaves so. */
  plan(behaviour: Behaviour | "no such command", run?: string): Promise<Planned>;
  /** What a refusal says of a plan with no process at all; absent: that the cell was found to have no such limit. */
  readonly withoutProcesses?: string;
  /** Names of all that the engine holds of a run. */
  traces(run: string): Promise<string[]>;
}

/** Every driver passes this. What only a kernel can show is in the docker driver's own tests. */
export function driverContract(name: string, makeHarness: () => Promise<DriverHarness>): void {
  describe(`the ${name} driver`, () => {
    let harness: DriverHarness;
    let driver: Driver;
    beforeAll(async () => {
      harness = await makeHarness();
      driver = harness.driverOf(harness.maker);
    });
    afterAll(() => harness[Symbol.asyncDispose]());

    const started = (behaviour: Behaviour, run?: string) => startedBy(harness, driver, behaviour, run);

    it("runs nothing before the release, and then prints from the first byte, in order", async () => {
      const { cell, output, plan } = await started("counts-up");
      await using _ = cell;
      await new Promise((later) => setTimeout(later, 50));
      expect(output.events).toEqual([]);
      expect(await harness.traces(plan.run)).not.toEqual([]);
      cell.release(Buffer.alloc(0));
      expect(await cell.exit).toMatchObject({ kind: "exited", code: 0 });
      expect(output.text("stdout")).toBe(Array.from({ length: 200 }, (_, n) => `${n + 1}\n`).join(""));
    });

    it.each([0, 1, 1024 * 1024])("hands over %i bytes of input whole, and then its end", async (bytes) => {
      const input = randomBytes(bytes);
      const { cell, output } = await started("echoes-its-input");
      await using _ = cell;
      cell.release(input);
      expect(await cell.exit).toMatchObject({ kind: "exited", code: 0 });
      expect(output.bytes("stdout").equals(input)).toBe(true);
    });

    it("keeps the two streams apart", async () => {
      const { cell, output } = await started("prints-on-both");
      await using _ = cell;
      cell.release(Buffer.alloc(0));
      await cell.exit;
      expect([output.text("stdout"), output.text("stderr")]).toEqual(["to out\n", "to err\n"]);
    });

    it.each([
      ["exits-with-3", 3],
      ["dies-of-segv", 139],
    ] as const)("tells how a worker that %s ended: %i", async (behaviour, code) => {
      const { cell } = await started(behaviour);
      await using _ = cell;
      cell.release(Buffer.alloc(0));
      expect(await cell.exit).toMatchObject({ kind: "exited", code, outOfMemory: false });
    });

    it("asks a worker to end by SIGTERM", async () => {
      const { cell, output } = await started("waits");
      await using _ = cell;
      cell.release(Buffer.alloc(0));
      await output.until("ready");
      await cell.kill("SIGTERM");
      expect(await cell.exit).toMatchObject({ kind: "exited", code: 143 });
    });

    it("ends a worker that ignores SIGTERM by SIGKILL, and delivers nothing after its end", async () => {
      const { cell, output } = await started("ignores-term");
      await using _ = cell;
      cell.release(Buffer.alloc(0));
      await output.until("ready");
      await cell.kill("SIGTERM");
      const early = await Promise.race([cell.exit, new Promise((later) => setTimeout(later, 100, "alive"))]);
      expect(early).toBe("alive");
      await cell.kill("SIGKILL");
      expect(await cell.exit).toMatchObject({ kind: "exited", code: 137 });
      const seen = output.events.length;
      await new Promise((later) => setTimeout(later, 50));
      expect(output.events).toHaveLength(seen);
    });

    it("can kill a cell that has ended, or is gone, without an error", async () => {
      const { cell } = await started("exits-with-3");
      cell.release(Buffer.alloc(0));
      await cell.exit;
      await cell.kill("SIGTERM");
      await cell.kill("SIGKILL");
      await cell[Symbol.asyncDispose]();
      await cell.kill("SIGKILL");
      expect(await cell.exit).toMatchObject({ code: 3 });
    });

    it.each(["behind its gate", "at work", "ended", "killed"] as const)(
      "removes every trace of a cell that is %s, also when it is told to twice",
      async (state) => {
        const { cell, output, plan } = await started(state === "ended" ? "exits-with-3" : "ignores-term");
        if (state !== "behind its gate") cell.release(Buffer.alloc(0));
        if (state === "ended") await cell.exit;
        else if (state !== "behind its gate") await output.until("ready");
        if (state === "killed") await cell.kill("SIGKILL");
        expect(await harness.traces(plan.run)).not.toEqual([]);
        await cell[Symbol.asyncDispose]();
        expect(await harness.traces(plan.run)).toEqual([]);
        await cell[Symbol.asyncDispose]();
        expect(await Promise.race([cell.exit.then(() => "settled"), rejectLater()])).toBe("settled");
      },
    );

    it.each([null, 0, 5, 20, 60])("leaves nothing of a start that is aborted after %s ms", async (ms) => {
      const { plan, pins } = await harness.plan("waits");
      const controller = new AbortController();
      const reason = new Error("changed my mind");
      if (ms === null) controller.abort(reason);
      else setTimeout(() => controller.abort(reason), ms);
      const outcome = await driver
        .start({ plan, pins, signal: controller.signal, onOutput: () => {} })
        .catch((error: unknown) => error);
      // A driver that was faster than the abort has made a cell, which is then its caller's to remove.
      if (outcome !== reason) await cellFrom(outcome)[Symbol.asyncDispose]();
      if (ms === null) expect(outcome).toBe(reason);
      expect(await harness.traces(plan.run)).toEqual([]);
    });

    it("refuses a cell whose mount is not what was pinned, names it, and leaves nothing", async () => {
      const { plan, pins } = await harness.plan("waits");
      const elsewhere = { device: "1", inode: "1" };
      const mounts = plan.mounts.map((mount) => (mount.path === "/data" ? { ...mount, identity: elsewhere } : mount));
      const start = await driver.start({ plan: { ...plan, mounts }, pins, ...undisturbed() });
      expect(start).toMatchObject({ ok: false, violations: [{ code: "MOUNT_SOURCE_REFUSED", path: "/data" }] });
      expect(await harness.traces(plan.run)).toEqual([]);
    });

    it("refuses a cell in which a bound is missing, names it, and leaves nothing", async () => {
      const { plan, pins } = await harness.plan("waits");
      const limits = { ...plan.limits, pids: 0 };
      const start = await driver.start({ plan: { ...plan, limits }, pins, ...undisturbed() });
      // With systemd, a cell without this bound has one of systemd's.
      const missing = [harness.withoutProcesses ?? expect.stringMatching(/^pids: planned 0, found (?:max|\d+)$/)];
      expect(start).toEqual({ ok: false, violations: [{ code: "ENFORCEMENT_MISSING", missing }] });
      expect(await harness.traces(plan.run)).toEqual([]);
    });

    it("refuses a command that the image does not hold, before anything runs", async () => {
      const { plan, pins } = await harness.plan("no such command");
      const start = await driver.start({ plan, pins, ...undisturbed() });
      expect(start).toMatchObject({ ok: false, violations: [{ code: "COMMAND_NOT_FOUND" }] });
      expect(await harness.traces(plan.run)).toEqual([]);
    });

    it("reports what was asked of a cell and what was found, and they are the same", async () => {
      const { cell, plan } = await started("waits");
      await using _ = cell;
      expect(cell.enforcement.actual).toEqual(cell.enforcement.requested);
      expect(cell.enforcement.actual).toMatchObject({
        mounts: `${plan.mounts.length} in place, no others`,
        user: `${plan.user.uid}:${plan.user.gid}`,
        capabilities: "none",
        network: "loopback only",
        pids: String(plan.limits.pids),
      });
    });

    it("fails a second start under a name that is in use, and leaves the first alone", async () => {
      const { cell, output, plan } = await started("waits");
      await using _ = cell;
      const again = await harness.plan("exits-with-3", plan.run);
      const traces = await harness.traces(plan.run);
      const error = await driver.start({ ...again, ...undisturbed() }).catch((reason: unknown) => reason);
      expect(error).toBeInstanceOf(EngineTrouble);
      expect(String(error)).toMatch(/is (already )?in use/);
      expect(String(error)).not.toContain("could not be removed");
      expect(await harness.traces(plan.run)).toEqual(traces);
      cell.release(Buffer.alloc(0));
      await output.until("ready");
    });

    it("lists its cells with their state, their worker and whether their owner lives", async () => {
      const { cell, plan } = await started("exits-with-3");
      await using _ = cell;
      const listed = async () => (await driver.list()).filter(({ run }) => run === plan.run);
      const expected = { id: cell.id, worker: "worker", root: plan.root, parent: null, ownerAlive: true };
      expect(await listed()).toMatchObject([{ ...expected, state: "running" }]);
      cell.release(Buffer.alloc(0));
      await cell.exit;
      expect(await listed()).toMatchObject([{ ...expected, state: "exited" }]);
    });

    it("reaps the cells of dead owners, in every state, and no living owner's", async () => {
      const dead = { ...harness.maker, owner: { ...currentOwner(), startTicks: "1" } };
      const mine = await started("waits");
      await using _ = mine.cell;
      const others = harness.driverOf(dead);
      const waiting = await startedBy(harness, others, "waits");
      const ended = await startedBy(harness, others, "exits-with-3");
      ended.cell.release(Buffer.alloc(0));
      await ended.cell.exit;
      const runs = [waiting.plan.run, ended.plan.run];
      expect(new Set((await driver.reap()).cells)).toEqual(new Set(runs));
      for (const run of runs) expect(await harness.traces(run)).toEqual([]);
      expect(await harness.traces(mine.plan.run)).not.toEqual([]);
      expect((await driver.reap()).cells).toEqual([]);
      await Promise.all([waiting.cell[Symbol.asyncDispose](), ended.cell[Symbol.asyncDispose]()]);
    });

    it("neither lists nor reaps what another state directory made", async () => {
      const { cell, plan } = await started("waits");
      await using _ = cell;
      const stranger = { owner: currentOwner(), sealKey: randomBytes(32) };
      expect(await harness.driverOf(stranger).list()).toEqual([]);
      const { cells } = await harness.driverOf(stranger).reap();
      expect(cells).toEqual([]);
      expect(await harness.traces(plan.run)).not.toEqual([]);
    });
  });
}

async function startedBy(harness: DriverHarness, driver: Driver, behaviour: Behaviour, run?: string) {
  const { plan, pins } = await harness.plan(behaviour, run);
  const output = new Captured();
  const { signal } = new AbortController();
  const start = await driver.start({ plan, pins, signal, onOutput: (stream, chunk) => output.add(stream, chunk) });
  return { cell: cellFrom(start), output, plan: plan as Plan };
}

function undisturbed() {
  return { signal: new AbortController().signal, onOutput: () => {} };
}

function cellFrom(start: unknown): Cell {
  const { cell } = start as { cell?: Cell };
  if (cell === undefined) throw new Error(`no cell: ${start instanceof Error ? start.stack : JSON.stringify(start)}`);
  return cell;
}

function rejectLater(): Promise<never> {
  return new Promise((_, reject) => {
    setTimeout(reject, 20_000, new Error("the exit of a removed cell never settled")).unref();
  });
}

class Captured {
  readonly events: { stream: "stdout" | "stderr"; chunk: Buffer }[] = [];
  #onEvent = (): void => {};

  add(stream: "stdout" | "stderr", chunk: Buffer): void {
    this.events.push({ stream, chunk });
    this.#onEvent();
  }

  bytes(stream: "stdout" | "stderr"): Buffer {
    return Buffer.concat(this.events.filter((event) => event.stream === stream).map(({ chunk }) => chunk));
  }

  text(stream: "stdout" | "stderr"): string {
    return this.bytes(stream).toString();
  }

  async until(word: string): Promise<void> {
    while (!this.text("stdout").includes(word)) {
      await new Promise<void>((event) => {
        this.#onEvent = event;
      });
    }
  }
}
