import { afterAll, beforeAll, describe, expect, it } from "vitest";
import { kernelText } from "../../../src/isolation/kernel/control-group.ts";
import type { Plan } from "../../../src/isolation/plan/plan.ts";
import { openProject } from "../../run/project-fixture.ts";
import { type Engine, openEngine, ranToItsEnd } from "./engine.ts";

/** A host whose policies name gVisor: `npm run test:hosts -- gvisor`. */
describe.skipIf(process.env.CORRAL_TEST_RUNTIME !== "runsc")("a cell of gVisor", () => {
  let engine: Engine;
  beforeAll(async () => {
    engine = await openEngine();
  });
  afterAll(() => engine[Symbol.asyncDispose]());

  it("has a kernel of its own, and its limits are those of control groups of this machine", async () => {
    const { stdout, exit } = await ranToItsEnd(engine, { command: ["cat", "/proc/version"] });
    expect(exit).toMatchObject({ kind: "exited", code: 0 });
    expect(stdout).toMatch(/^Linux version /);
    expect(stdout).not.toBe(kernelText("/proc/version"));
  });

  it.each<readonly [string, (plan: Plan) => Partial<Plan>, string]>([
    [
      "an allow list",
      () => ({ network: { rules: [], listeners: [], names: [], proxy: true } }),
      "network: the sockets",
    ],
    ["many items in one cell", () => ({ serves: true }), "Use `reuse: fresh`"],
    ["fewer processes than its threads", ({ limits }) => ({ limits: { ...limits, pids: 64 } }), "Set limits.pids"],
    [
      "the filter of the Engine",
      ({ hardening }) => ({ hardening: { ...hardening, seccomp: "engine" } }),
      "could trace Corral's gate",
    ],
  ])("is refused, with the reason, if its plan has %s", async (_, changed, reason) => {
    const { plan, pins } = await engine.plan({ command: ["true"] });
    const signal = new AbortController().signal;
    const start = await engine.driver.start({ plan: { ...plan, ...changed(plan) }, pins, signal, onOutput: () => {} });
    expect(start).toMatchObject({ ok: false, violations: [{ code: "ENFORCEMENT_MISSING" }] });
    expect(JSON.stringify(start)).toContain(reason);
    expect(await engine.traces(plan.run)).toEqual([]);
  });

  it("is refused for a worker with an allow list, before anything runs", async () => {
    const network = { allow: ["a.example:443"] };
    await using project = await openProject({
      policy: "default",
      sandbox: { network },
      workers: { w: { command: ["true"], sandbox: { network } } },
    });
    expect(await project.run("w")).toMatchObject({ status: "refused", violations: [{ code: "ENFORCEMENT_MISSING" }] });
  });
});
