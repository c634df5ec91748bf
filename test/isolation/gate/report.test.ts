import { spawnSync } from "node:child_process";
import { existsSync, mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { describe, expect, it } from "vitest";
import { trustedProgram } from "../../../src/files/host/system-program.ts";
import { gateCommand, parseGateReport } from "../../../src/isolation/gate/report.ts";
import { planFor } from "../../../src/isolation/plan/plan-for.ts";
import { project, strict } from "../../sandbox/sandboxes.ts";
import { requestFor } from "../plan-requests.ts";
import { SOUND_REPORT } from "./sound-report.ts";

const busybox = trustedProgram("busybox");

describe.skipIf(busybox === null)("what the gate reports", () => {
  it("is told by no program and no variable of the image, and those of the worker are left as they are", () => {
    const dir = mkdtempSync(join(tmpdir(), "gate-"));
    try {
      const mark = join(dir, "mark");
      const planning = planFor(requestFor({ sandbox: project([], { network: false }, strict) }));
      if (!planning.ok) throw new Error(JSON.stringify(planning.violations));
      const names = "head stat setpriv grep readlink cat".split(" ");
      for (const name of names)
        writeFileSync(join(dir, name), `#!/bin/sh\necho "$0" >> ${mark}\n/bin/busybox ${name} "$@"\n`, { mode: 0o755 });
      writeFileSync(
        join(dir, "work"),
        '#!/bin/sh\necho "$file $value $line $corral_gate_entered$corral_gate_command"\n',
        {
          mode: 0o755,
        },
      );
      const plan = { ...planning.plan, workingDir: join(dir, "none"), command: ["work"] };
      const mine = { file: "1", value: "2", line: "3" };
      const env = { ...mine, PATH: `:${dir}`, corral_gate_entered: "entered", corral_gate_command: "/bin/true" };
      const given = { env, input: "go\n", encoding: "latin1" } as const;
      const { stdout } = spawnSync(busybox ?? "", gateCommand(plan as typeof planning.plan).slice(1), given);
      const [report = "", ...printed] = stdout.split(/(?<=\n== end\n)/);
      const { directoryEntered, command, status, namespaces, flaws } = parseGateReport(report);
      expect([directoryEntered, command, flaws]).toEqual([false, join(dir, "work"), []]);
      expect([status.has("Seccomp"), namespaces.size, existsSync(mark)]).toEqual([true, 4, false]);
      expect(printed.join("")).toBe("== begun\n1 2 3 \n");
    } finally {
      rmSync(dir, { recursive: true });
    }
  });
});

describe("reading a gate's report", () => {
  const report = parseGateReport(SOUND_REPORT);

  it("finds each mount with its place, its kind and its options", () => {
    expect(report.mounts).toHaveLength(18);
    expect(report.mounts[0]).toMatchObject({ path: "/", readOnly: true, type: "overlay" });
    expect(report.mounts.find(({ path }) => path === "/tmp")).toEqual({
      path: "/tmp",
      root: "/",
      readOnly: false,
      type: "tmpfs",
      options: ["rw", "nosuid", "nodev", "noexec", "relatime"],
      superOptions: ["rw", "size=65536k"],
    });
  });

  it("reads the kernel's octal escapes in paths", () => {
    expect(report.mounts.map(({ path }) => path)).toContain("/the data");
    expect(report.identities.get("/the data")).toBe("8:101");
  });

  it("takes a place as it is, also one that ends with a blank", () => {
    const { identities } = parseGateReport("== identities\n8:7 /out/trail.pdf \n8:9 /out/ a b\n");
    expect([...identities]).toEqual([
      ["/out/trail.pdf ", "8:7"],
      ["/out/ a b", "8:9"],
    ]);
  });

  it("takes a mount's own mode, and not its file system's", () => {
    const [mount] = parseGateReport(
      "==> /proc/self/mountinfo <==\n1 2 8:1 / /x ro,noatime shared:1 master:2 - ext4 /dev/x rw\n",
    ).mounts;
    expect(mount).toMatchObject({ path: "/x", readOnly: true, type: "ext4" });
  });

  it("reads status, limits, interfaces, control groups and the command", () => {
    expect(report.status.get("Seccomp")).toBe("2");
    expect(report.limits.get("Max open files")).toBe("1024");
    expect(report.interfaces).toEqual(["lo", "tunl0"]);
    expect(report.swapKilobytes).toBe(2097148);
    expect(report.cgroup.get("pids/pids.max")).toBe("512");
    expect(report.command).toBe("/usr/bin/do");
  });

  it("tells both limits where a process may raise the first", () => {
    const text = "==> /proc/self/limits <==\nLimit  Soft Limit  Hard Limit  Units\nMax open files   10   20   files\n";
    expect(parseGateReport(text).limits.get("Max open files")).toBe("10, at most 20");
  });

  it.each([
    "",
    "== mountinfo",
    "==> /proc/self/mountinfo <==",
    "==> mountinfo <==\n1",
    "no report at all\nx",
    "== mountinfo\n\n- \n== limits\n==",
  ])("makes nothing up from %j", (text) => {
    const { command, identities, status, interfaces } = parseGateReport(text);
    expect([command, identities.size, status.size, interfaces.length]).toEqual(["", 0, 0, 0]);
  });
});
