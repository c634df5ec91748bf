import { describe, expect, it } from "vitest";
import { parseGateReport } from "../../../src/isolation/gate/report.ts";
import { verifyCell } from "../../../src/isolation/gate/verify.ts";
import type { Plan } from "../../../src/isolation/plan/plan.ts";
import { planFor } from "../../../src/isolation/plan/plan-for.ts";
import type { Violation } from "../../../src/sandbox/violation.ts";
import { mount, project, strict } from "../../sandbox/sandboxes.ts";
import { requestFor } from "../plan-requests.ts";
import { CGROUP_V2, SOUND_REPORT } from "./sound-report.ts";

const plan = ((): Plan => {
  const approval = { write: "pre_approved", delete: "pre_approved" } as const;
  const mounts = [mount("/the data", "ro"), mount("/out", "rw", { approval })];
  const planning = planFor(requestFor({ sandbox: project(mounts, { network: false }, strict) }));
  if (!planning.ok) throw new Error(JSON.stringify(planning.violations));
  return planning.plan;
})();

const V1_GROUPS = /memory\/memory\.limit_in_bytes[\s\S]*cpu\.cfs_period_us 100000/;
const onV2 = SOUND_REPORT.replace(V1_GROUPS, CGROUP_V2);

/** The report with every line that matches written as the replacement says; a pattern that matches nothing is a mistake. */
function altered(report: string, from: RegExp | string, to: string): string {
  const text = report.replace(from, to);
  if (text === report) throw new Error(`the report has no ${from}`);
  return text;
}

function violations(report: string, planned = plan): readonly Violation[] {
  return verifyCell(planned, parseGateReport(report), "engine").violations;
}

/** What is named as missing; anything else that is refused fails the test. */
function missing(report: string, planned = plan): readonly string[] {
  return violations(report, planned).flatMap((violation) => {
    if (violation.code !== "ENFORCEMENT_MISSING") throw new Error(JSON.stringify(violation));
    return violation.missing;
  });
}

describe("a cell that is what was planned", () => {
  it.each([
    ["cgroup v1", SOUND_REPORT],
    ["cgroup v2", onV2],
    [
      "cgroup v2 without swap",
      altered(altered(onV2, "memory.swap.max 0\n", ""), /SwapTotal:.*/, "SwapTotal:             0 kB"),
    ],
    [
      "cgroup v1 without swap accounting, or swap",
      altered(altered(SOUND_REPORT, /.*memsw.*\n/, ""), /SwapTotal:.*/, "SwapTotal:             0 kB"),
    ],
  ])("passes, and what was found is told as it was asked (%s)", (_, report) => {
    const { violations, enforcement } = verifyCell(plan, parseGateReport(report), "engine");
    expect(violations).toEqual([]);
    expect(enforcement.actual).toEqual(enforcement.requested);
  });

  it("has a loopback device and nothing else, also with an allow list", () => {
    const allow = [{ to: "*.example.org:443" }, { to: "db.example.org:5432" }];
    const planning = planFor(
      requestFor({ sandbox: { ...project([], { network: false }, strict), network: { allow } } }),
    );
    if (!planning.ok) throw new Error(JSON.stringify(planning.violations));
    const networkOf = (report: string) => verifyCell(planning.plan, parseGateReport(report), "engine").enforcement;
    const line = "loopback only, 1 host and a proxy through Corral";
    expect(networkOf(SOUND_REPORT)).toMatchObject({ requested: { network: line }, actual: { network: line } });
    const more = altered(SOUND_REPORT, "    lo:", "  eth0:\n    lo:");
    expect(networkOf(more).actual.network).toBe("interfaces eth0");
  });

  it("is refused where its worker could not begin in its directory", () => {
    const refused = [{ code: "WORKING_DIR_MISSING", path: plan.workingDir }];
    expect(violations(altered(SOUND_REPORT, "entered\n", ""))).toEqual(refused);
    expect(violations(altered(SOUND_REPORT, "== directory\nentered\n", ""))).toEqual(refused);
  });

  it("may hide a file of the kernel behind the null device of this machine, and behind no other of its devices", () => {
    const hidden = (device: string): string =>
      altered(SOUND_REPORT, /^118 .*$/m, `118 169 0:5 /${device} /proc/keys ro - devtmpfs devtmpfs rw`);
    expect(violations(hidden("null"))).toEqual([]);
    expect(missing(hidden("sda"))).toEqual([expect.stringContaining("and also /proc/keys")]);
  });

  it("of bubblewrap may have what a machine with systemd has mounted among the settings of its kernel, read-only", () => {
    const strangers = (type: string, flags: string, driver: "bwrap" | "engine"): boolean => {
      const line = `114 169 0:40 / /proc/sys/fs/binfmt_misc ${flags},relatime - ${type} none rw`;
      const report = altered(SOUND_REPORT, /^118 .*$/m, line);
      return verifyCell(plan, parseGateReport(report), driver).enforcement.actual.mounts.includes("binfmt_misc");
    };
    for (const type of ["autofs", "binfmt_misc"]) {
      expect(strangers(type, "ro", "bwrap")).toBe(false);
      expect(strangers(type, "rw", "bwrap")).toBe(true);
      expect(strangers(type, "ro", "engine")).toBe(true);
    }
    expect(strangers("ext4", "ro", "bwrap")).toBe(true);
  });

  it("of bubblewrap may write to no file system in memory that is not planned", () => {
    const strangers = (
      path: string,
      flags: string,
      options: string,
      root = "/",
      driver: "bwrap" | "engine" = "bwrap",
    ) => {
      const line = `114 169 0:40 ${root} ${path} ${flags},nosuid,nodev,noexec,relatime - tmpfs none rw,${options}`;
      const report = altered(SOUND_REPORT, /^118 .*$/m, line);
      return verifyCell(plan, parseGateReport(report), driver).enforcement.actual.mounts.includes(path);
    };
    for (const path of ["/dev/other", "/proc/other"]) {
      expect(strangers(path, "rw", "size=65536k")).toBe(true);
      expect(strangers(path, "ro", "size=65536k")).toBe(false);
      expect(strangers(path, "rw", "size=65536k", "/", "engine")).toBe(false);
    }
    expect(strangers("/dev/shm", "rw", "size=65536k")).toBe(false);
    // As in a container.
    expect(strangers("/dev/null", "rw", "mode=755", "/null")).toBe(false);
    expect(strangers("/dev/null", "rw", "mode=755", "/other")).toBe(true);
    expect(strangers("/dev/shm", "rw", "size=65536k", "/shared")).toBe(true);
    expect(strangers("/dev/shm", "rw", "mode=755")).toBe(true);
  });

  it("may keep a capability that its policy keeps", () => {
    const capabilities = ["CAP_KILL", "CAP_CHOWN"];
    const keeping = { ...plan, hardening: { ...plan.hardening, capabilities } };
    const report = altered(SOUND_REPORT, /(Cap(?:Prm|Eff|Bnd)):\t\d{16}/g, "$1:\t0000000000000021");
    expect(violations(report, keeping)).toEqual([]);
    expect(missing(SOUND_REPORT, keeping)).toEqual(["capabilities: planned CAP_CHOWN CAP_KILL, found none"]);
  });
});

describe("a cell that is not what was planned is refused, and named is", () => {
  it.each([
    [
      "a capability it holds",
      "CapEff:\t0000000000000000",
      "CapEff:\t0000000000200000",
      "capabilities: planned none, found CAP_SYS_ADMIN",
    ],
    [
      "a capability it could gain",
      "CapBnd:\t0000000000000000",
      "CapBnd:\t0000000000000001",
      "capabilities: planned none, found CAP_CHOWN",
    ],
    [
      "a capability its programs inherit",
      "CapAmb:\t0000000000000000",
      "CapAmb:\t0000000000002000",
      "capabilities: planned none, found CAP_NET_RAW",
    ],
    [
      "a capability that has no name yet",
      "CapEff:\t0000000000000000",
      "CapEff:\t8000000000000000",
      "capabilities: planned none, found 0x400000",
    ],
    ["a set of capabilities that is not told", /CapBnd.*\n/, "", "capabilities: planned none, found unknown"],
    ["seccomp that is off", "Seccomp:\t2", "Seccomp:\t0", "seccomp: planned filtering, found absent"],
    ["seccomp that is not told", /Seccomp.*\n/, "", "seccomp: planned filtering, found absent"],
    ["privileges that can be gained", "NoNewPrivs:\t1", "NoNewPrivs:\t0", "noNewPrivileges: planned on, found off"],
    ["another user", /Uid:.*/, "Uid:\t0\t0\t0\t0", "user: planned 65532:65532, found 0:65532"],
    [
      "a user that can be gone back to",
      /Uid:.*/,
      "Uid:\t65532\t0\t65532\t65532",
      "user: planned 65532:65532, found 65532/0:65532",
    ],
    ["another group", /Gid:.*/, "Gid:\t0\t0\t0\t0", "user: planned 65532:65532, found 65532:0 and groups 65532"],
    ["one group more", /Groups:.*/, "Groups:\t0 65532 ", "user: planned 65532:65532, found 65532:65532 and groups 0"],
    ["no list of groups", /Groups:.*/, "", "user: planned 65532:65532, found 65532:65532 and groups unknown"],
    ["the host's processes", "4026532200", "4026531836", "namespace pid: planned its own, found the host's"],
    ["an unknown namespace", "4026532201 /proc/self/ns/ipc\n", "", "namespace ipc: planned its own, found unknown"],
    ["a writable root", " / / ro,", " / / rw,", "rootFileSystem: planned read-only, found writable"],
    [
      "a second root over the first",
      "\n==> /proc/self/status <==",
      "300 168 0:99 / / rw - ext4 /dev/vdb rw\n\n==> /proc/self/status <==",
      "rootFileSystem: planned read-only, found writable",
    ],
    ["a network interface", "    lo:", "  eth0:\n    lo:", "network: planned loopback only, found interfaces eth0"],
    [
      "memory",
      "memory.limit_in_bytes 536870912",
      "memory.limit_in_bytes 9223372036854771712",
      /^memory: planned 536870912, found 9223372036854771712$/,
    ],
    [
      "memory with swap",
      "memsw.limit_in_bytes 536870912",
      "memsw.limit_in_bytes 1073741824",
      "memoryAndSwap: planned 536870912, found 1073741824",
    ],
    [
      "swap that nothing counts",
      /.*memsw.*\n/,
      "",
      "memoryAndSwap: planned 536870912, found 536870912 and swap unknown",
    ],
    ["processes", "pids.max 512", "pids.max max", "pids: planned 512, found max"],
    ["processes that nothing counts", /.*pids\.max.*\n/, "", "pids: planned 512, found unknown"],
    ["processors", "cfs_quota_us 400000", "cfs_quota_us -1", "cpus: planned 4.00, found unlimited"],
    ["more of the processors", "cfs_quota_us 400000", "cfs_quota_us 800000", "cpus: planned 4.00, found 8.00"],
    ["open files", /(Max open files +)1024( +)1024 /, "$1524288$2524288 ", "openFiles: planned 1024, found 524288"],
    [
      "a limit that can be raised",
      /(Max open files +)1024( +)1024 /,
      "$11024$24096 ",
      "openFiles: planned 1024, found 1024, at most 4096",
    ],
    [
      "the size of files",
      /(Max file size +)1048576( +)1048576/,
      "$1unlimited$2unlimited",
      "fileSize: planned 1048576, found unlimited",
    ],
    [
      "a mount that nobody planned",
      "\n==> /proc/self/status <==",
      "300 168 254:0 / /host rw - ext4 /dev/vda rw\n\n==> /proc/self/status <==",
      "mounts: planned 4 in place, no others, found 4 in place, and also /host",
    ],
    [
      "an ordinary file system among the kernel's",
      "\n==> /proc/self/status <==",
      "300 168 254:0 /etc /proc/x rw - ext4 /dev/vda rw\n\n==> /proc/self/status <==",
      "mounts: planned 4 in place, no others, found 4 in place, and also /proc/x",
    ],
    [
      "disk in the place of a tmpfs",
      / \/tmp rw(.*) - tmpfs tmpfs/,
      " /tmp rw$1 - ext4 tmpfs",
      "mounts: planned 4 in place, no others, found 4 in place, and also /tmp",
    ],
    [
      "a tmpfs whose files can be executed",
      "/tmp rw,nosuid,nodev,noexec",
      "/tmp rw,nosuid,nodev",
      "mounts: planned 4 in place, no others, found 4 in place, and also /tmp",
    ],
    [
      "a tmpfs with devices",
      "/tmp rw,nosuid,nodev,",
      "/tmp rw,nosuid,",
      "mounts: planned 4 in place, no others, found 4 in place, and also /tmp",
    ],
    [
      "a tmpfs of another size",
      "rw,size=65536k\n189",
      "rw\n189",
      "mounts: planned 4 in place, no others, found 4 in place, and also /tmp",
    ],
    [
      "a tmpfs that is not there",
      /.* \/tmp .*\n/,
      "",
      "mounts: planned 4 in place, no others, found 4 in place, no others, no tmpfs at /tmp",
    ],
  ])("%s", (_, from, to, named) => {
    expect(missing(altered(SOUND_REPORT, from, to))).toEqual([
      expect.stringMatching(named instanceof RegExp ? named : asPattern(named)),
    ]);
  });

  it.each([
    [
      "memory, with what counts against it",
      "memory.max 536870912",
      "memory.max max",
      ["memory: planned 536870912, found max", "memoryAndSwap: planned 536870912, found max"],
    ],
    [
      "swap",
      "memory.swap.max 0",
      "memory.swap.max max",
      ["memoryAndSwap: planned 536870912, found 536870912 and swap max"],
    ],
    ["processes", "pids.max 512", "pids.max 513", ["pids: planned 512, found 513"]],
    ["processors", "cpu.max 400000", "cpu.max max", ["cpus: planned 4.00, found unlimited"]],
  ])("%s (cgroup v2)", (_, from, to, named) => {
    expect(missing(altered(onV2, from, to))).toEqual(named);
  });

  it.each([
    ["a mount that is writable and should not be", "/the\\040data ro,", "/the\\040data rw,", "/the data"],
    ["a mount that is read-only and should not be", " /out rw,", " /out ro,", "/out"],
    ["a mount of another directory", "8:101 /the data", "8:999 /the data", "/the data"],
    ["a mount on another device", "8:100 /out", "9:100 /out", "/out"],
    ["a mount that could not be looked at", "8:100 /out\n", "", "/out"],
    ["a mount that is not there", /.* \/out rw.*\n/, "", "/out"],
    [
      "a mount under another one in its place",
      "\n==> /proc/self/status <==",
      "300 168 254:0 /x /the\\040data rw - ext4 /dev/vda rw\n\n==> /proc/self/status <==",
      "/the data",
    ],
    ["a gate that is not Corral's", "8:10 /.corral", "8:12 /.corral", "/.corral/busybox"],
  ])("%s", (_, from, to, path) => {
    expect(violations(altered(SOUND_REPORT, from, to))).toEqual([
      { code: "MOUNT_SOURCE_REFUSED", path, reason: expect.stringContaining("replaced while") },
    ]);
  });

  it.each([
    ["/x\n== dev\nh1\nh2\nlo", "a second section dev"],
    ["/x\n==> /proc/self/limits <==", "a second section limits"],
    ["/x\n== mine\nx", "a section that the gate does not write"],
    ["/x\n/usr/bin/do", "a command on several lines"],
  ])("a report into which the image's own path %j brings lines", (path, flaw) => {
    const forged = altered(SOUND_REPORT, "/usr/bin/do", path);
    expect(missing(forged)).toContain(`report: planned the gate's own, found ${flaw}`);
  });

  it("a command that the image does not hold", () => {
    expect(violations(altered(SOUND_REPORT, "/usr/bin/do\n", "\n"))).toEqual([
      { code: "COMMAND_NOT_FOUND", command: "do", image: "corral/base", searched: plan.env.PATH },
    ]);
  });

  it("a script whose first line names a program that is missing, whatever else that line is", () => {
    for (const line of ["/bin/sh\r", "== end", "==> /proc/self/limits <=="]) {
      const script = altered(SOUND_REPORT, "/usr/bin/do\n", `/usr/bin/do\n== interpreter\n ${line}\n`);
      expect(violations(script)).toEqual([
        { code: "COMMAND_NOT_FOUND", command: "do", image: "corral/base", interpreter: line },
      ]);
    }
  });

  it("everything at once", () => {
    const report = altered(altered(SOUND_REPORT, "Seccomp:\t2", "Seccomp:\t0"), "pids.max 512", "pids.max max");
    expect(missing(report)).toHaveLength(2);
    expect(violations(altered(report, "8:100 /out", "9:100 /out"))).toHaveLength(2);
  });

  it("every line, where the report is empty", () => {
    expect(new Set(violations("").map(({ code }) => code))).toEqual(
      new Set(["MOUNT_SOURCE_REFUSED", "ENFORCEMENT_MISSING", "WORKING_DIR_MISSING", "COMMAND_NOT_FOUND"]),
    );
    const named = violations("").find(({ code }) => code === "ENFORCEMENT_MISSING");
    const lines = Object.keys(verifyCell(plan, parseGateReport(""), "engine").enforcement.requested);
    // `mounts` is told by the mounts themselves.
    for (const line of lines.filter((line) => line !== "mounts")) {
      expect(JSON.stringify(named)).toContain(`"${line}: planned`);
    }
  });
});

function asPattern(text: string): RegExp {
  return new RegExp(`^${text.replace(/[.*+?^${}()|[\]\\/]/g, "\\$&")}$`);
}

describe("a cell with secrets", () => {
  const withSecrets: Plan = {
    ...plan,
    secrets: ["token"],
    tmpfs: [...plan.tmpfs, { path: "/run/secrets", bytes: 1024 ** 2, exec: false, mode: "0700" }],
  };
  const line = (path: string, more = "rw,nosuid,nodev,noexec,relatime - tmpfs tmpfs rw,size=1024k"): string =>
    `195 168 0:76 / ${path} ${more}\n`;
  const reported = (...lines: string[]): string =>
    altered(SOUND_REPORT, "\n\n==> /proc/self/status", `\n${lines.join("")}\n==> /proc/self/status`);

  it("has them in memory at their place, and nothing over it", () => {
    expect(violations(reported(line("/run/secrets")), withSecrets)).toEqual([]);
  });

  it("is refused if something is there already, which another engine may copy from the image", () => {
    const taken = altered(reported(line("/run/secrets")), "== end", "== secrets\ntaken\n== end");
    expect(missing(taken, withSecrets).join()).toContain("/run/secrets not empty");
  });

  it.each([
    ["nowhere", [line("/proc/scsi")], "no tmpfs at /run/secrets"],
    ["where a link of the image leads", [line("/etc/secrets")], "and also /etc/secrets"],
    ["on a disk", [line("/run/secrets", "rw,nosuid,nodev,noexec - ext4 /dev/vda rw")], "and also /run/secrets"],
    ["with room for more", [line("/run/secrets", "rw,nosuid,nodev,noexec - tmpfs tmpfs rw")], "and also /run/secrets"],
    ["below a mount that was made later", [line("/run/secrets"), line("/run")], "/run/secrets covered"],
  ])("is refused if they are %s", (_, lines, found) => {
    expect(missing(reported(...lines), withSecrets).join()).toContain(found);
  });
});
