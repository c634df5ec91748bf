import fc from "fast-check";
import { beforeAll, describe, expect, it } from "vitest";
import { loadSeccompProfile } from "../../../src/declarations/policy/policy.ts";
import { filterProgram } from "../../../src/isolation/seccomp/filter.ts";
import {
  type OciRule,
  type OciSeccomp,
  ociSeccomp,
  plannedSeccomp,
} from "../../../src/isolation/seccomp/planned-profile.ts";

const ALLOW = 0x7fff0000;
const KILL_PROCESS = 0x80000000;
const refused = (errno: number): number => 0x00050000 | errno;
const X64 = 0xc000003e;
const ARM64 = 0xc00000b7;

interface Called {
  readonly audit: number;
  readonly number: number;
  readonly args: readonly bigint[];
}

/** Runs such a program as the kernel does (linux/filter.h). */
function run(program: Buffer, { audit, number, args }: Called): number {
  const data = Buffer.alloc(64);
  data.writeUInt32LE(number >>> 0, 0);
  data.writeUInt32LE(audit, 4);
  for (const [index, arg] of args.entries()) data.writeBigUInt64LE(arg, 16 + index * 8);
  let word = 0;
  for (let at = 0; at < program.length / 8; at += 1) {
    const [code, k] = [program.readUInt16LE(at * 8), program.readUInt32LE(at * 8 + 4)];
    const jump = (holds: boolean): number => program.readUInt8(at * 8 + (holds ? 2 : 3));
    if (code === 0x20) word = data.readUInt32LE(k);
    else if (code === 0x54) word = (word & k) >>> 0;
    else if (code === 0x15) at += jump(word === k);
    else if (code === 0x35) at += jump(word >= k);
    else if (code === 0x05) at += k;
    else if (code === 0x06) return k;
    else throw new Error(`no such instruction: ${code}`);
  }
  throw new Error("the program has no end");
}

/** What the rules of a profile say of a call by its name. */
function said({ syscalls, defaultAction }: OciSeccomp, name: string, args: readonly bigint[]): number {
  const holds = (rule: OciRule): boolean =>
    (rule.args ?? []).every(({ index, op, value, valueTwo = 0 }) => {
      const arg = args[index] ?? 0n;
      return op === "SCMP_CMP_EQ" ? arg === BigInt(value) : (arg & BigInt(value)) === BigInt(valueTwo);
    });
  const rule = syscalls.find((one) => one.names.includes(name) && holds(one));
  const { action, errnoRet = 1 } = rule ?? { action: defaultAction };
  return action === "SCMP_ACT_ALLOW" ? ALLOW : refused(errnoRet);
}

/** By x86-64's own numbers. */
const NUMBERS: Readonly<Record<string, number>> = {
  read: 0,
  ioctl: 16,
  socket: 41,
  clone: 56,
  fcntl: 72,
  ptrace: 101,
  mknod: 133,
  personality: 135,
  setpriority: 141,
  mount: 165,
  inotify_init1: 294,
  prlimit64: 302,
  memfd_create: 319,
  bpf: 321,
  io_uring_setup: 425,
  clone3: 435,
  mseal: 462,
};

let profile: string;
beforeAll(async () => {
  profile = await loadSeccompProfile();
});

const hardening = { seccomp: "corral", tmpExec: false, fileWatches: false } as never;
const PLANS = {
  run: { hardening },
  session: { hardening, startsCommands: true as const },
  serving: { hardening, serves: true as const },
};

describe("the kernel's filter of system calls", () => {
  it.each(Object.entries(PLANS))(
    "says of each call what the profile of a %s says, whatever its arguments are",
    (_, plan) => {
      const rules = ociSeccomp(plannedSeccomp(plan, profile), "x64");
      const program = filterProgram(rules);
      const named = rules.syscalls.flatMap(({ args = [] }) =>
        args.flatMap(({ value, valueTwo = 0 }) => [value, valueTwo]),
      );
      const numbers = [...new Set(named)].map(BigInt);
      const word = fc.oneof(
        fc.constantFrom(...numbers),
        fc.constantFrom(...numbers).map((value) => value | (1n << 40n)),
        fc.bigInt({ min: 0n, max: 0xffff_ffff_ffff_ffffn }),
        fc.bigInt({ min: 0n, max: 64n }),
      );
      const args = fc.tuple(word, word, word, word, word, word);
      fc.assert(
        fc.property(fc.constantFrom(...Object.keys(NUMBERS)), args, (name, given) => {
          const number = NUMBERS[name] as number;
          expect(run(program, { audit: X64, number, args: given }), name).toBe(said(rules, name, given));
        }),
        { numRuns: 3000 },
      );
    },
  );

  it("ends a process that calls by another table, and knows no call that is newer than the list", () => {
    const program = filterProgram(ociSeccomp(profile, "x64"));
    const call = (audit: number, number: number) => run(program, { audit, number, args: [] });
    expect(call(0x40000003, 0)).toBe(KILL_PROCESS);
    expect(call(ARM64, 0)).toBe(KILL_PROCESS);
    expect(call(X64, 0x40000000)).toBe(KILL_PROCESS);
    expect(call(X64, 463)).toBe(refused(38));
    expect(call(X64, 0)).toBe(ALLOW);
    expect(call(X64, 165)).toBe(refused(1));
  });

  it("has the other numbers of ARM", () => {
    const program = filterProgram(ociSeccomp(profile, "arm64"));
    const call = (number: number) => run(program, { audit: ARM64, number, args: [] });
    // read, mount, ptrace and openat (asm-generic/unistd.h).
    expect([63, 40, 117, 56].map(call)).toEqual([ALLOW, refused(1), refused(1), ALLOW]);
  });

  it("is refused for what it cannot express", () => {
    const rules = ociSeccomp(profile, "x64");
    const rule = { names: ["read"], action: "SCMP_ACT_ALLOW" };
    const made = (more: Partial<OciSeccomp>) => () => filterProgram({ ...rules, ...more });
    expect(made({ architectures: ["SCMP_ARCH_X86"] })).toThrow("SCMP_ARCH_X86");
    expect(made({ syscalls: [{ ...rule, action: "SCMP_ACT_LOG" }] })).toThrow("SCMP_ACT_LOG");
    expect(made({ syscalls: [{ ...rule, names: ["reed"] }] })).toThrow("reed");
    expect(made({ syscalls: [{ ...rule, args: [{ index: 0, value: 1, op: "SCMP_CMP_GT" }] }] })).toThrow("SCMP_CMP_GT");
  });
});
