import { readFile } from "node:fs/promises";
import { describe, expect, it } from "vitest";
import { loadSeccompProfile } from "../../../src/declarations/policy/seccomp.ts";

interface Rule {
  readonly comment?: string;
  readonly names: readonly string[];
  readonly action: string;
  readonly errnoRet?: number;
  readonly args?: readonly { index: number; value: number; valueTwo?: number; op: string }[];
}

interface Profile {
  readonly defaultAction: string;
  readonly archMap: readonly { architecture: string; subArchitectures: readonly string[] }[];
  readonly syscalls: readonly Rule[];
}

const profile: Profile = JSON.parse(await readFile(new URL("../../../policies/seccomp.json", import.meta.url), "utf8"));
const rulesFor = (name: string) => profile.syscalls.filter((rule) => rule.names.includes(name));
const allowed = (name: string) => rulesFor(name).filter((rule) => rule.action === "SCMP_ACT_ALLOW");

describe("the corral seccomp profile", () => {
  it("is a list of what is allowed, for two architectures and none of their older tables", () => {
    expect(profile.defaultAction).toBe("SCMP_ACT_ERRNO");
    expect(profile.archMap).toEqual([
      { architecture: "SCMP_ARCH_X86_64", subArchitectures: [] },
      { architecture: "SCMP_ARCH_AARCH64", subArchitectures: [] },
    ]);
  });

  it("says of every rule what it is for", () => {
    for (const rule of profile.syscalls) expect(rule.comment ?? "").toMatch(/^.{10,}\.$/);
  });

  it.each(
    `ptrace process_vm_readv process_vm_writev kcmp pidfd_getfd process_madvise keyctl add_key request_key bpf
    perf_event_open userfaultfd io_uring_setup io_uring_enter io_uring_register mount umount umount2 pivot_root chroot
    fsopen fsconfig fsmount fspick move_mount open_tree mount_setattr unshare setns clone3 open_by_handle_at
    name_to_handle_at kexec_load kexec_file_load init_module finit_module delete_module quotactl quotactl_fd swapon
    swapoff reboot settimeofday clock_settime adjtimex clock_adjtime stime sethostname setdomainname acct syslog iopl
    ioperm modify_ldt fanotify_init memfd_secret mbind vmsplice io_setup socketcall ipc mq_open mq_timedsend mq_timedreceive
    mq_notify mq_unlink mq_getsetattr fcntl64`.split(/\s+/),
  )("never allows %s", (name) => expect(allowed(name)).toEqual([]));

  it.each(
    `futex rseq membarrier statx openat2 close_range landlock_create_ruleset memfd_create epoll_pwait2 prlimit64
    sched_getaffinity getrandom execve wait4 capset prctl setgroups fchmodat2 arch_prctl`.split(/\s+/),
  )("allows %s, which ordinary programs or the Engine's own start need", (name) => {
    expect(allowed(name)).toHaveLength(1);
    expect(allowed(name)[0]?.args).toBeUndefined();
  });

  it("allows clone only without any of the flags that make a namespace", () => {
    const newNamespaces = 0x20000 | 0x2000000 | 0x4000000 | 0x8000000 | 0x10000000 | 0x20000000 | 0x40000000;
    expect(allowed("clone").map(({ args }) => args)).toEqual([
      [{ index: 0, value: newNamespaces, valueTwo: 0, op: "SCMP_CMP_MASKED_EQ" }],
    ]);
    expect(rulesFor("clone3")).toMatchObject([{ action: "SCMP_ACT_ERRNO", errnoRet: 38 }]);
  });

  it("lets no program watch files, and says so as a kernel without it does", () => {
    const rules = ["inotify_init", "inotify_init1", "inotify_add_watch"].map((name) => rulesFor(name));
    for (const rule of rules) expect(rule).toMatchObject([{ action: "SCMP_ACT_ERRNO", errnoRet: 38 }]);
  });

  it("allows four socket families, and of netlink only routing", () => {
    const families = allowed("socket").map(({ args }) => args?.map(({ index, value, op }) => [index, value, op]));
    expect(families).toEqual([
      [[0, 1, "SCMP_CMP_EQ"]],
      [[0, 2, "SCMP_CMP_EQ"]],
      [[0, 10, "SCMP_CMP_EQ"]],
      [
        [0, 16, "SCMP_CMP_EQ"],
        [2, 0, "SCMP_CMP_EQ"],
      ],
    ]);
  });

  it("makes no device nodes", () => {
    const types = ["mknod", "mknodat"].map((name) => allowed(name).map(({ args }) => args?.[0]?.valueTwo));
    expect(types).toEqual([
      [0, 0o100000, 0o010000, 0o140000],
      [0, 0o100000, 0o010000, 0o140000],
    ]);
  });

  it("allows every command of fcntl but those that make other programs wait or send them signals of a directory", () => {
    const allows = (command: number): boolean =>
      allowed("fcntl").some(({ args = [] }) =>
        args.every(({ index, value, valueTwo }) => index === 1 && (command & value) >>> 0 === valueTwo),
      );
    expect(Array.from({ length: 2048 }, (_, command) => command).filter(allows)).toEqual([
      ...[0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 15, 16, 17, 36, 37, 38],
      ...[1027, 1028, 1030, 1031, 1032, 1033, 1034, 1035, 1036, 1037, 1038],
    ]);
  });

  it("travels to the Engine without the comments", async () => {
    const sent = await loadSeccompProfile();
    expect(sent).not.toContain("comment");
    expect(JSON.parse(sent).syscalls).toHaveLength(profile.syscalls.length);
  });
});
