import { mkdir, mkdtemp, rm, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { setImmediate as nextTurn } from "node:timers/promises";
import { describe, expect, it } from "vitest";
import { currentOwner } from "../../../src/state/owner.ts";
import { mount, strict } from "../../sandbox/sandboxes.ts";
import { type Behaviour, type DriverHarness, driverContract } from "../driver.contract.ts";
import { type Planned, pinnedPlan } from "../pinned-plan.ts";
import { fakeDriver } from "./driver.ts";
import { fakeEngine } from "./engine.ts";
import type { FakeProcess, FakeProgram } from "./program.ts";

const PROGRAMS: Readonly<Record<Behaviour, FakeProgram>> = {
  "echoes-its-input": ({ stdin, stdout }) => {
    stdout.write(stdin);
    return 0;
  },
  "prints-on-both": ({ stdout, stderr }) => {
    stdout.write("to out\n");
    stderr.write("to err\n");
    return 0;
  },
  "counts-up": async ({ stdout }) => {
    for (let n = 1; n <= 200; n += 1) {
      if (n % 50 === 0) await nextTurn();
      stdout.write(`${n}\n`);
    }
    return 0;
  },
  "exits-with-3": () => 3,
  "dies-of-segv": () => 139,
  waits: async ({ stdout, signal }) => {
    stdout.write("ready\n");
    await new Promise((_, reject) => signal.addEventListener("abort", () => reject(signal.reason)));
    return 0;
  },
  "ignores-term": async ({ stdout, signal }) => {
    stdout.write("ready\n");
    const stillHere = () => stdout.write("still here\n");
    // Now, and once more when it has been killed.
    signal.addEventListener("abort", () => [5, 130].map((ms) => setTimeout(stillHere, ms)));
    return await new Promise<never>(() => {});
  },
};

async function openFake(): Promise<DriverHarness> {
  const dir = await mkdtemp(join(tmpdir(), "corral-fake-"));
  const engine = fakeEngine();
  await mkdir(join(dir, "data"));
  await writeFile(join(dir, "gate"), "");
  await writeFile(join(dir, "s"), "");
  const planned: Planned[] = [];
  return {
    maker: { owner: currentOwner(), sealKey: Buffer.alloc(32, 1) },
    driverOf: (maker) => fakeDriver({ programs: PROGRAMS, maker, engine }),
    async plan(behaviour, run) {
      const made = await pinnedPlan({
        command: [behaviour],
        image: { name: "fake", id: "fake:fake", env: [], volumes: [] },
        policy: strict,
        plumbing: { gate: join(dir, "gate"), socket: join(dir, "s") },
        mounts: [mount("/data", "ro", { host: join(dir, "data") })],
        ...(run === undefined ? {} : { run }),
      });
      planned.push(made);
      return made;
    },
    traces: async (run) => [...engine.containers.keys()].filter((name) => name === `corral-${run}`),
    async [Symbol.asyncDispose]() {
      for (const { pins } of planned) await pins[Symbol.asyncDispose]();
      await rm(dir, { recursive: true });
    },
  };
}

driverContract("fake", openFake);

describe("what only the fake driver can do", () => {
  async function ran(program: FakeProgram, deviate?: Parameters<typeof fakeDriver>[0]["deviate"]) {
    await using harness = await openFake();
    const driver = fakeDriver({ programs: { waits: program }, maker: harness.maker, ...(deviate && { deviate }) });
    const output: string[] = [];
    const start = await driver.start({
      ...(await harness.plan("waits")),
      signal: new AbortController().signal,
      onOutput: (stream, chunk) => output.push(`${stream} ${chunk}`),
    });
    if (!start.ok) return { violations: start.violations };
    start.cell.release(Buffer.from("input"));
    return { exit: await start.cell.exit, output };
  }

  it("gives a program its command, its environment and its input", async () => {
    let seen: FakeProcess | undefined;
    await ran((process) => {
      seen = process;
      return 0;
    });
    expect(seen?.argv).toEqual(["waits"]);
    expect(seen?.env).toMatchObject({ HOME: "/home/worker", TMPDIR: "/tmp" });
    expect(seen?.stdin.toString()).toBe("input");
  });

  it("lets a test make cells that are not what was planned", async () => {
    const { violations } = await ran(
      () => 0,
      (sound) => ({ ...sound, interfaces: ["lo", "eth0"] }),
    );
    const missing = ["network: planned loopback only, found interfaces eth0"];
    expect(violations).toEqual([{ code: "ENFORCEMENT_MISSING", missing }]);
  });

  it("lets a program end as only an engine can tell", async () => {
    const lost = { kind: "lost", reason: "the engine is gone" } as const;
    expect((await ran(() => lost)).exit).toEqual(lost);
  });

  it("takes a program that throws for one that failed, and says what it threw", async () => {
    const crashed = await ran(() => {
      throw new Error("a mistake in the test");
    });
    expect(crashed.exit).toMatchObject({ kind: "exited", code: 1 });
    expect(crashed.output).toEqual(["stderr Error: a mistake in the test\n"]);
  });
});
