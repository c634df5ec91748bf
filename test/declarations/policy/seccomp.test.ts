import { readFile } from "node:fs/promises";
import { describe, expect, it } from "vitest";
import { loadSeccompProfile } from "../../../src/declarations/policy/policy.ts";

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
    `futex rseq membarrier statx openat2 close_range landlock_create_ruleset epoll_pwait2 prlimit64
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

  it("allows Unix sockets, the named protocols of two families, and of netlink only routing", () => {
    const kinds = Array.from({ length: 11 }, (_, kind) => kind);
    const protocols = [...Array.from({ length: 512 }, (_, protocol) => protocol), 2 ** 20];
    const allows = (...values: number[]): boolean =>
      allowed("socket").some(({ args = [] }) =>
        args.every(({ index, value, valueTwo = 0, op }) =>
          op === "SCMP_CMP_EQ" ? values[index] === value : ((values[index] ?? 0) & value) >>> 0 === valueTwo,
        ),
      );
    const of = (family: number): string[] =>
      kinds.flatMap((kind) =>
        protocols.filter((protocol) => allows(family, kind, protocol)).map((protocol) => `${kind}/${protocol}`),
      );
    expect(of(2)).toEqual(["1/0", "1/6", "2/0", "2/1", "2/17"]);
    expect(of(10)).toEqual(["1/0", "1/6", "2/0", "2/17", "2/58"]);
    expect(of(16).map((each) => each.split("/")[1])).toEqual(Array(kinds.length).fill("0"));
    const families = Array.from({ length: 64 }, (_, family) => family).filter((family) => of(family).length > 0);
    expect(families).toEqual([1, 2, 10, 16]);
    // A new descriptor may close on exec, and need not wait.
    expect(allows(2, 1 | 0x80000 | 0x800, 0)).toBe(true);
  });

  it("allows requests of terminals and sockets to ioctl, and of files only two that read", () => {
    const allows = (command: number): boolean =>
      allowed("ioctl").some(({ args = [] }) =>
        args.every(({ index, value, valueTwo }) => index === 1 && (command & value) >>> 0 === valueTwo),
      );
    expect([0x5401, 0x5413, 0x541b, 0x5421, 0x5451, 0x8912, 0x802c542a].filter((command) => !allows(command))).toEqual(
      [],
    );
    const denied = {
      BTRFS_IOC_SUBVOL_CREATE: 0x5000940e,
      BTRFS_IOC_SUBVOL_CREATE_V2: 0x50009418,
      BTRFS_IOC_SNAP_CREATE: 0x50009401,
      BTRFS_IOC_SNAP_CREATE_V2: 0x50009417,
      FICLONE: 0x40049409,
      FICLONERANGE: 0x4020940d,
      FIDEDUPERANGE: 0xc0189436,
      FS_IOC_SETFLAGS: 0x40086602,
      FS_IOC_FSSETXATTR: 0x401c5820,
      EXT4_IOC_MOVE_EXT: 0xc028660f,
      XFS_IOC_RESVSP64: 0x4030582a,
      XFS_IOC_OPEN_BY_HANDLE: 0x4038586b,
      FS_IOC_ENABLE_VERITY: 0x40806685,
      FS_IOC_SET_ENCRYPTION_POLICY: 0x800c6613,
      TIOCSTI: 0x5412,
      TIOCSETD: 0x5423,
      TIOCLINUX: 0x541c,
      TUNSETIFF: 0x400454ca,
      SIOCSIFFLAGS: 0x8914,
      SIOCETHTOOL: 0x8946,
      NS_GET_USERNS: 0xb701,
    };
    for (const [name, command] of Object.entries(denied)) expect([name, allows(command)]).toEqual([name, false]);
    // Of all numbers without a size few are allowed: a mask that is too wide would show here.
    const plain = Array.from({ length: 0x10000 }, (_, command) => command).filter(allows);
    expect(plain.filter((command) => command >> 8 !== 0x54 && command >> 8 !== 0x89)).toEqual([]);
    expect(plain).toHaveLength(52);
  });

  it("makes files in memory only if they can never be executed", () => {
    expect(rulesFor("memfd_create")).toMatchObject([
      { action: "SCMP_ACT_ERRNO", errnoRet: 38, args: [{ index: 1, value: 8, valueTwo: 0 }] },
      { action: "SCMP_ACT_ALLOW", args: [{ index: 1, value: 8, valueTwo: 8 }] },
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
