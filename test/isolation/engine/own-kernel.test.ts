import type Docker from "dockerode";
import { describe, expect, it } from "vitest";
import { chosenRuntime, notForRuntime, seenFromOutside } from "../../../src/isolation/engine/own-kernel.ts";
import { parseGateReport } from "../../../src/isolation/gate/report.ts";
import { kernelText } from "../../../src/isolation/kernel/control-group.ts";
import type { Plan } from "../../../src/isolation/plan/plan.ts";

const ARGS = ["--platform=ptrace", "--network=none", "--oci-seccomp", "--fsgofer-host-uds"];
const gvisor = { name: "runsc", args: ARGS, isGvisor: true };

/** What matters of an Engine here. */
const engine = {
  info: async () => ({ Runtimes: { runc: { path: "runc" }, runsc: { path: "/usr/bin/runsc", runtimeArgs: ARGS } } }),
} as unknown as Docker;

function plan(runtime: string | readonly string[], more: object = {}): Plan {
  return {
    hardening: { runtime, seccomp: "corral" },
    limits: { pids: 256 },
    network: "none",
    mounts: [],
    ...more,
  } as unknown as Plan;
}

describe("the runtime of a policy", () => {
  it("is the first of a list that the Engine has, and never another one than it names", async () => {
    const chosen = async (runtime: string | string[]) => (await chosenRuntime(engine, plan(runtime))).name;
    expect(await chosen(["runsc", "default"])).toBe("runsc");
    expect(await chosen(["kata", "runsc"])).toBe("runsc");
    expect(await chosen(["kata", "default"])).toBe(null);
    // The Engine refuses it.
    expect(await chosen(["kata", "other"])).toBe("kata");
    expect(await chosen("kata")).toBe("kata");
    expect(await chosenRuntime(engine, plan("runsc"))).toEqual(gvisor);
    expect(await chosenRuntime(engine, plan("runc"))).toMatchObject({ name: "runc", isGvisor: false });
  });

  it("is refused if it is Kata or has its name, whatever makes its cells then", async () => {
    const shim = { runtimeType: "io.containerd.kata.v2" };
    const Runtimes = { vm: shim, old: { path: "/usr/bin/kata-runtime" }, kata: { path: "runc" }, katamaran: {} };
    const having = { info: async () => ({ Runtimes }) } as unknown as Docker;
    const refusals = async (runtime: string) =>
      notForRuntime(plan(runtime), await chosenRuntime(having, plan(runtime)));
    for (const name of ["vm", "old", "kata", "io.containerd.kata.v2"])
      expect(await refusals(name)).toEqual([expect.stringContaining(`runtime: ${name} is Kata`)]);
    expect(await refusals("katamaran")).toEqual([]);
  });

  it("is refused with each thing that its cells would not have", () => {
    expect(notForRuntime(plan("runsc"), gvisor)).toEqual([]);
    const bare = { ...gvisor, args: [] };
    const network = { listeners: [], names: [], proxy: true };
    const asked = plan("runsc", { limits: { pids: 64 }, network, serves: true });
    const missing = ["the filter", "the socket", "pids", "network", "reuse"];
    const found = notForRuntime(asked, bare);
    expect(missing.filter((what) => !found.some((line) => line.startsWith(what)))).toEqual([]);
    expect(found).toHaveLength(missing.length);
    expect(notForRuntime(asked, { ...bare, isGvisor: false })).toEqual([]);
  });
});

describe("what is seen of a cell with a kernel of its own", () => {
  const seen = (kernel: string) =>
    seenFromOutside(
      parseGateReport(
        `==> /proc/version <==\n${kernel}\n== ulimits\n1024\n1024\n2048\n2048\nno_new_privs: 1\n== end\n`,
      ),
      {
        plan: plan("runsc"),
        group: { processes: () => [process.pid], limits: () => new Map([["pids.max", "256"]]) } as never,
        runtime: gvisor,
      },
    );

  it("are its limits, which its own kernel does not know, and no directories without a gofer", () => {
    const report = seen("Linux version 4.4.0");
    expect(report).toMatchObject({ ownKernel: true, flaws: [] });
    expect([...report.cgroup]).toEqual([["pids.max", "256"]]);
    expect(report.identities.size).toBe(0);
    expect(report.limits.get("Max file size")).toBe(String(1024 ** 2));
    expect(report.status.get("NoNewPrivs")).toBe("1");
  });

  it("is a flaw if the kernel is this machine's", () => {
    const report = seen(kernelText("/proc/version")?.trim() ?? "");
    expect(report.ownKernel).toBeUndefined();
    expect(report.flaws).toHaveLength(1);
  });
});
