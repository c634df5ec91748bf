import { mkdir, mkdtemp, rm, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import { dirname, join } from "node:path";
import { afterAll, beforeAll, describe, expect, it } from "vitest";
import { findControlGroup } from "../../../src/isolation/kernel/control-group.ts";
import { missingCgroups } from "../../../src/isolation/runc/ground/conditions.ts";
import { cgroupPlace } from "../../../src/isolation/runc/model/layout.ts";

const ID = "corral-0a1b2c3d-000000000001";
const AT = `corral/${ID}`;
/** As hosts have them: Debian 12 without systemd, with version 1; Debian 13 with systemd and AppArmor, with version 2. */
const LAYOUTS = {
  version1: {
    "cpu/cgroup.procs": "1\n",
    "memory/cgroup.procs": "1\n",
    "pids/cgroup.procs": "1\n",
    [`cpuacct/${AT}/cpuacct.usage`]: "12345678\n",
    [`memory/${AT}/memory.max_usage_in_bytes`]: "4096000\n",
    [`memory/${AT}/memory.oom_control`]: "oom_kill_disable 0\nunder_oom 0\noom_kill 2\n",
    [`memory/${AT}/memory.kmem.tcp.limit_in_bytes`]: "9223372036854771712\n",
    [`pids/${AT}/cgroup.procs`]: "41\n42\n",
  },
  version2: {
    "cgroup.controllers": "cpuset cpu io memory hugetlb pids rdma misc\n",
    "system.slice/docker-0123.scope/cpu.stat": "usage_usec 1\n",
    [`${AT}/cpu.stat`]: "usage_usec 12345\nuser_usec 6000\nsystem_usec 6345\n",
    [`${AT}/memory.peak`]: "4096000\n",
    [`${AT}/memory.events`]: "low 0\nhigh 0\nmax 9\noom 2\noom_kill 2\noom_group_kill 0\n",
    [`${AT}/cgroup.procs`]: "41\n42\n",
  },
} as const;

let dir: string;
beforeAll(async () => {
  dir = await mkdtemp(join(tmpdir(), "corral-cgroups-"));
  for (const [name, files] of Object.entries(LAYOUTS))
    for (const [path, text] of Object.entries(files)) {
      await mkdir(dirname(join(dir, name, path)), { recursive: true });
      await writeFile(join(dir, name, path), text);
    }
});
afterAll(() => rm(dir, { recursive: true }));

describe.each(["version1", "version2"] as const)("the control groups of a cell of runc, with %s", (name) => {
  it("are where no manager of systemd's would put them, and are read there", () => {
    const group = findControlGroup([cgroupPlace(ID)], join(dir, name));
    expect(group?.processes()).toEqual([41, 42]);
    expect(group?.usage()).toEqual({ cpuMs: 12, memoryBytesPeak: 4_096_000 });
    expect(group?.oomKills()).toBe(2);
    expect(group?.boundSockets(4096)).toBe("counted");
    expect(findControlGroup([cgroupPlace("corral-0a1b2c3d-000000000002")], join(dir, name))).toBeNull();
  });

  it("can have every limit", () => {
    expect(missingCgroups(join(dir, name))).toBeNull();
  });
});

it("a kernel that has no control groups for a limit is refused, and those are named", async () => {
  const root = join(dir, "few");
  await mkdir(root);
  await writeFile(join(root, "cgroup.controllers"), "cpuset cpu io\n");
  expect(missingCgroups(root)).toBe("the kernel has no control groups for memory, pids");
  expect(missingCgroups(join(dir, "none"))).toBe("the kernel has no control groups for cpu, memory, pids");
});
