import { readFile } from "node:fs/promises";
import { describe, expect, it } from "vitest";
import { ociConfig } from "../../bench/contenders/oci-config.ts";
import type { Plan } from "../../src/isolation/plan/plan.ts";

const LIMITS = { memoryBytes: 1000, cpus: 1.5, pids: 7, nofile: 11, diskBytes: 2000, timeoutMs: 1, outputBytes: 1 };
const PLAN = {
  user: { uid: 65532, gid: 65533 },
  limits: LIMITS,
  tmpfs: [{ path: "/tmp", bytes: 4096, exec: false, mode: "1777" }],
  workingDir: "/work",
  env: { A: "b" },
} as unknown as Plan;

describe("the bundle of the bare runtime", () => {
  it("has the limits, the user, the mounts and the command of the other contenders", () => {
    const bind = { host: "/h", path: "/p", mode: "ro", kind: "file" } as const;
    const profile = JSON.stringify({ defaultAction: "SCMP_ACT_ERRNO", syscalls: [] });
    const config = ociConfig(PLAN, { command: ["true"], binds: [bind] }, { root: "/r", cgroup: "/c" }, profile);
    expect(config.root).toEqual({ path: "/r", readonly: true });
    expect(config.process).toMatchObject({
      user: PLAN.user,
      args: ["true"],
      env: ["A=b"],
      cwd: "/work",
      capabilities: {},
      noNewPrivileges: true,
    });
    expect(config.process.rlimits).toContainEqual({ type: "RLIMIT_NOFILE", hard: 11, soft: 11 });
    expect(config.process.rlimits).toContainEqual({ type: "RLIMIT_FSIZE", hard: 2000, soft: 2000 });
    expect(config.linux.resources).toMatchObject({
      memory: { limit: 1000, swap: 1000 },
      cpu: { quota: 150_000, period: 100_000 },
      pids: { limit: 7 },
    });
    expect(config.mounts.at(-2)).toMatchObject({ destination: "/tmp", type: "tmpfs" });
    expect(config.mounts.at(-2)?.options).toContain("size=4096");
    expect(config.mounts.at(-1)).toMatchObject({
      destination: "/p",
      source: "/h",
      options: ["bind", "rprivate", "ro"],
    });
    expect(config.linux.namespaces.map(({ type }) => type)).toEqual(["mount", "network", "uts", "pid", "ipc"]);
  });

  it("has every rule of Corral's seccomp profile that is for this processor", async () => {
    const profile = await readFile(new URL("../../policies/seccomp.json", import.meta.url), "utf8");
    const { syscalls } = JSON.parse(profile) as { syscalls: { names: string[]; includes?: { arches?: string[] } }[] };
    const { seccomp } = ociConfig(PLAN, { command: [], binds: [] }, { root: "/r", cgroup: "/c" }, profile).linux;
    const isHere = process.arch === "x64";
    const wanted = syscalls.filter(({ includes }) => includes?.arches === undefined || isHere);
    expect(seccomp.defaultAction).toBe("SCMP_ACT_ERRNO");
    expect(seccomp.syscalls.map(({ names }) => names)).toEqual(wanted.map(({ names }) => names));
    expect(seccomp.syscalls.filter((rule) => "args" in rule).length).toBeGreaterThan(20);
  });
});
