import type { OciArgument, OciRule, OciSeccomp } from "./planned-profile.ts";

/*
 * A filter of system calls as the kernel reads it: a program of classic BPF (seccomp(2), linux/filter.h). An OCI runtime makes one with libseccomp;
 * bubblewrap takes one that is made.
 */

/** Offsets in `struct seccomp_data`. */
const NUMBER_AT = 0;
const ARCHITECTURE_AT = 4;
const ARGUMENTS_AT = 16;

/** Codes of instructions: load a word, jump if equal, if at least, jump, and with bits, return. */
const LOAD = 0x20;
const IF_EQUAL = 0x15;
const IF_AT_LEAST = 0x35;
const JUMP = 0x05;
const AND = 0x54;
const RETURN = 0x06;

const KILL_PROCESS = 0x80000000;
const ALLOW = 0x7fff0000;
const ERRNO = 0x00050000;
const EPERM = 1;
const ENOSYS = 38;

/** The most that the kernel takes. */
const MAX_INSTRUCTIONS = 4096;

/** As the kernel names a processor in a filter (linux/audit.h), and the column of its numbers in {@link NUMBERS}. */
const ARCHITECTURES: Readonly<Record<string, { readonly audit: number; readonly column: 0 | 1 }>> = {
  SCMP_ARCH_X86_64: { audit: 0xc000003e, column: 0 },
  SCMP_ARCH_AARCH64: { audit: 0xc00000b7, column: 1 },
};
/** A call of x86-64 with this bit is one of another kind (x32), whose numbers are others. */
const X32 = 0x40000000;

/** `jt`, `jf`: how many instructions are passed over if the condition holds, and if not. */
type Instruction = readonly [code: number, jt: number, jf: number, k: number];

/**
 * The filter as bytes, in this machine's order.
 *
 * @throws Error for anything that it cannot express: a rule that was left out would make another filter.
 */
export function filterProgram({ defaultAction, architectures, syscalls }: OciSeccomp): Buffer {
  const [name = "", ...others] = architectures;
  const architecture = ARCHITECTURES[name];
  if (architecture === undefined || others.length > 0)
    throw new Error(`no filter is made for processors of the kinds ${architectures.join(", ")}`);
  const { audit, column } = architecture;
  const otherwise = returned({ action: defaultAction });
  const numbers = numbersIn(column);
  const highest = Math.max(...numbers.values());
  const program: Instruction[] = [
    [LOAD, 0, 0, ARCHITECTURE_AT],
    [IF_EQUAL, 1, 0, audit],
    [RETURN, 0, 0, KILL_PROCESS],
    [LOAD, 0, 0, NUMBER_AT],
    ...(column === 0
      ? ([
          [IF_AT_LEAST, 0, 1, X32],
          [RETURN, 0, 0, KILL_PROCESS],
        ] as const)
      : []),
    // A call that is newer than the list: programs look for another way only if the kernel does not know it.
    [IF_AT_LEAST, 0, 1, highest + 1],
    [RETURN, 0, 0, ERRNO | ENOSYS],
    ...[...rulesByNumber(syscalls, numbers)].flatMap(([number, rules]) => blockOf(number, rules, otherwise)),
    otherwise,
  ];
  if (program.length > MAX_INSTRUCTIONS) throw new Error(`a filter of ${program.length} instructions is too long`);
  const bytes = Buffer.alloc(program.length * 8);
  for (const [at, [code, jt, jf, k]] of program.entries()) {
    bytes.writeUInt16LE(code, at * 8);
    bytes.writeUInt8(jt, at * 8 + 2);
    bytes.writeUInt8(jf, at * 8 + 3);
    bytes.writeUInt32LE(k >>> 0, at * 8 + 4);
  }
  return bytes;
}

/** The rules of each call in their order. What this kind of processor does not have needs none. */
function rulesByNumber(syscalls: readonly OciRule[], numbers: ReadonlyMap<string, number>): Map<number, OciRule[]> {
  const rules = new Map<number, OciRule[]>();
  for (const rule of syscalls)
    for (const name of rule.names) {
      const number = numbers.get(name);
      if (number !== undefined) rules.set(number, [...(rules.get(number) ?? []), rule]);
      else if (!KNOWN.has(name)) throw new Error(`the number of the system call ${name} is not known`);
    }
  return rules;
}

/** What is done with one call: the first rule that holds counts. Conditions replace what was loaded, so each way out of it is a return. */
function blockOf(number: number, rules: readonly OciRule[], otherwise: Instruction): Instruction[] {
  const [first] = rules;
  if (first !== undefined && (first.args ?? []).length === 0) return [[IF_EQUAL, 0, 1, number], returned(first)];
  const ways = rules.flatMap((rule) => [...conditionsOf(rule.args ?? []), returned(rule)]);
  return [[IF_EQUAL, 1, 0, number], [JUMP, 0, 0, ways.length + 1], ...ways, otherwise];
}

/** All of them hold, or what follows is passed over with one instruction more: the return of the rule. */
function conditionsOf(args: readonly OciArgument[]): Instruction[] {
  const tests = args.flatMap(testsOf);
  let after = tests.reduce((count, { masked }) => count + (masked === null ? 2 : 3), 0);
  return tests.flatMap(({ offset, masked, value }): Instruction[] => {
    after -= masked === null ? 2 : 3;
    const compare: Instruction = [IF_EQUAL, 0, after + 1, value];
    return [[LOAD, 0, 0, offset], ...(masked === null ? [] : ([[AND, 0, 0, masked]] as const)), compare];
  });
}

/** An argument has 64 bits, and an instruction compares 32. */
function testsOf({ index, op, value, valueTwo = 0 }: OciArgument) {
  const [mask, wanted] = op === "SCMP_CMP_MASKED_EQ" ? [BigInt(value), BigInt(valueTwo)] : [ALL_BITS, BigInt(value)];
  if (op !== "SCMP_CMP_MASKED_EQ" && op !== "SCMP_CMP_EQ")
    throw new Error(`a condition of the seccomp profile cannot be translated: ${op}`);
  if ((wanted & ~mask) !== 0n) throw new Error("a condition of the seccomp profile never holds");
  return [0n, 32n].flatMap((shift) => {
    const bits = Number((mask >> shift) & LOW_BITS);
    const offset = ARGUMENTS_AT + index * 8 + (shift === 0n ? 0 : 4);
    const masked = bits === Number(LOW_BITS) ? null : bits;
    return bits === 0 ? [] : [{ offset, masked, value: Number((wanted >> shift) & LOW_BITS) }];
  });
}

const LOW_BITS = 0xffff_ffffn;
const ALL_BITS = 0xffff_ffff_ffff_ffffn;

function returned({ action, errnoRet = EPERM }: Pick<OciRule, "action" | "errnoRet">): Instruction {
  if (action === "SCMP_ACT_ALLOW") return [RETURN, 0, 0, ALLOW];
  if (action === "SCMP_ACT_ERRNO") return [RETURN, 0, 0, ERRNO | errnoRet];
  throw new Error(`an action of the seccomp profile cannot be translated: ${action}`);
}

function numbersIn(column: 0 | 1): Map<string, number> {
  const all = [...KNOWN].map(([name, numbers]) => [name, numbers[column]] as const);
  return new Map(all.filter((entry): entry is [string, number] => entry[1] !== null));
}

/** The calls that a profile may name, each with its number for x86-64 and for ARM with 64 bits; `-`: that has none. */
const NUMBERS = `
  accept 43 202, accept4 288 242, access 21 -, alarm 37 -, arch_prctl 158 -, bind 49 200, brk 12 214,
  cachestat 451 451, capget 125 90, capset 126 91, chdir 80 49, chmod 90 -, chown 92 -, clock_getres 229 114,
  clock_gettime 228 113, clock_nanosleep 230 115, clone 56 220, clone3 435 435, close 3 57, close_range 436 436,
  connect 42 203, copy_file_range 326 285, creat 85 -, dup 32 23, dup2 33 -, dup3 292 24, epoll_create 213 -,
  epoll_create1 291 20, epoll_ctl 233 21, epoll_pwait 281 22, epoll_pwait2 441 441, epoll_wait 232 -, eventfd 284 -,
  eventfd2 290 19, execve 59 221, execveat 322 281, exit 60 93, exit_group 231 94, faccessat 269 48,
  faccessat2 439 439, fadvise64 221 223, fallocate 285 47, fchdir 81 50, fchmod 91 52, fchmodat 268 53,
  fchmodat2 452 452, fchown 93 55, fchownat 260 54, fcntl 72 25, fdatasync 75 83, fgetxattr 193 10,
  flistxattr 196 13, flock 73 32, fork 57 -, fremovexattr 199 16, fsetxattr 190 7, fstat 5 80, fstatfs 138 44,
  fsync 74 82, ftruncate 77 46, futex 202 98, futex_requeue 456 456, futex_wait 455 455, futex_waitv 449 449,
  futex_wake 454 454, futimesat 261 -, get_robust_list 274 100, getcpu 309 168, getcwd 79 17, getdents 78 -,
  getdents64 217 61, getegid 108 177, geteuid 107 175, getgid 104 176, getgroups 115 158, getitimer 36 102,
  getpeername 52 205, getpgid 121 155, getpgrp 111 -, getpid 39 172, getppid 110 173, getpriority 140 141,
  getrandom 318 278, getresgid 120 150, getresuid 118 148, getrlimit 97 163, getrusage 98 165, getsid 124 156,
  getsockname 51 204, getsockopt 55 209, gettid 186 178, gettimeofday 96 169, getuid 102 174, getxattr 191 8,
  inotify_add_watch 254 27, inotify_init 253 -, inotify_init1 294 26, inotify_rm_watch 255 28,
  io_uring_enter 426 426, io_uring_register 427 427, io_uring_setup 425 425, ioctl 16 29, ioprio_get 252 31,
  ioprio_set 251 30, kill 62 129, landlock_add_rule 445 445, landlock_create_ruleset 444 444,
  landlock_restrict_self 446 446, lchown 94 -, lgetxattr 192 9, link 86 -, linkat 265 37, listen 50 201,
  listxattr 194 11, llistxattr 195 12, lremovexattr 198 15, lseek 8 62, lsetxattr 189 6, lstat 6 -, madvise 28 233,
  map_shadow_stack 453 453, membarrier 324 283, memfd_create 319 279, mincore 27 232, mkdir 83 -, mkdirat 258 34,
  mknod 133 -, mknodat 259 33, mlock 149 228, mlock2 325 284, mlockall 151 230, mmap 9 222, mprotect 10 226,
  mremap 25 216, mseal 462 462, msgctl 71 187, msgget 68 186, msgrcv 70 188, msgsnd 69 189, msync 26 227,
  munlock 150 229, munlockall 152 231, munmap 11 215, nanosleep 35 101, newfstatat 262 79, open 2 -, openat 257 56,
  openat2 437 437, pause 34 -, personality 135 92, pidfd_open 434 434, pidfd_send_signal 424 424, pipe 22 -,
  pipe2 293 59, pkey_alloc 330 289, pkey_free 331 290, pkey_mprotect 329 288, poll 7 -, ppoll 271 73, prctl 157 167,
  pread64 17 67, preadv 295 69, preadv2 327 286, prlimit64 302 261, pselect6 270 72, pwrite64 18 68, pwritev 296 70,
  pwritev2 328 287, read 0 63, readahead 187 213, readlink 89 -, readlinkat 267 78, readv 19 65, recvfrom 45 207,
  recvmmsg 299 243, recvmsg 47 212, removexattr 197 14, rename 82 -, renameat 264 38, renameat2 316 276,
  restart_syscall 219 128, rmdir 84 -, rseq 334 293, rt_sigaction 13 134, rt_sigpending 127 136,
  rt_sigprocmask 14 135, rt_sigqueueinfo 129 138, rt_sigreturn 15 139, rt_sigsuspend 130 133,
  rt_sigtimedwait 128 137, rt_tgsigqueueinfo 297 240, sched_get_priority_max 146 125, sched_get_priority_min 147 126,
  sched_getaffinity 204 123, sched_getattr 315 275, sched_getparam 143 121, sched_getscheduler 145 120,
  sched_rr_get_interval 148 127, sched_setaffinity 203 122, sched_setattr 314 274, sched_setparam 142 118,
  sched_setscheduler 144 119, sched_yield 24 124, seccomp 317 277, select 23 -, semctl 66 191, semget 64 190,
  semop 65 193, semtimedop 220 192, sendfile 40 71, sendmmsg 307 269, sendmsg 46 211, sendto 44 206,
  set_robust_list 273 99, set_tid_address 218 96, setfsgid 123 152, setfsuid 122 151, setgid 106 144,
  setgroups 116 159, setitimer 38 103, setpgid 109 154, setpriority 141 140, setregid 114 143, setresgid 119 149,
  setresuid 117 147, setreuid 113 145, setrlimit 160 164, setsid 112 157, setsockopt 54 208, setuid 105 146,
  setxattr 188 5, shmat 30 196, shmctl 31 195, shmdt 67 197, shmget 29 194, shutdown 48 210, sigaltstack 131 132,
  signalfd 282 -, signalfd4 289 74, socket 41 198, socketpair 53 199, splice 275 76, stat 4 -, statfs 137 43,
  statx 332 291, symlink 88 -, symlinkat 266 36, sync 162 81, sync_file_range 277 84, syncfs 306 267, sysinfo 99 179,
  tee 276 77, tgkill 234 131, time 201 -, timer_create 222 107, timer_delete 226 111, timer_getoverrun 225 109,
  timer_gettime 224 108, timer_settime 223 110, timerfd_create 283 85, timerfd_gettime 287 87,
  timerfd_settime 286 86, times 100 153, tkill 200 130, truncate 76 45, umask 95 166, uname 63 160, unlink 87 -,
  unlinkat 263 35, utime 132 -, utimensat 280 88, utimes 235 -, vfork 58 -, wait4 61 260, waitid 247 95, write 1 64,
  writev 20 66`;

const KNOWN: ReadonlyMap<string, readonly [number | null, number | null]> = new Map(
  NUMBERS.split(",").map((row) => {
    const [name = "", x64 = "-", arm64 = "-"] = row.trim().split(" ");
    const numberOf = (text: string): number | null => (text === "-" ? null : Number(text));
    return [name, [numberOf(x64), numberOf(arm64)]];
  }),
);
