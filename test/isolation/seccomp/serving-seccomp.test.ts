import { readFileSync } from "node:fs";
import { expect, it } from "vitest";
import { servingSeccomp } from "../../../src/isolation/seccomp/planned-profile.ts";

interface Rule {
  readonly names: readonly string[];
  readonly action: string;
  readonly args?: readonly { index: number; value: number; valueTwo: number; op: string }[];
}

const PROFILE = readFileSync(new URL("../../../policies/seccomp.json", import.meta.url), "utf8");

/** Whether the kernel would allow a call whose second argument is `command`. */
function allowing(profile: string): (name: string, command: number) => boolean {
  const { syscalls } = JSON.parse(profile) as { syscalls: readonly Rule[] };
  return (name, command) =>
    syscalls.some(
      ({ names, action, args = [] }) =>
        action === "SCMP_ACT_ALLOW" &&
        names.includes(name) &&
        args.every(({ value, valueTwo }) => (BigInt(command) & BigInt(value)) === BigInt(valueTwo)),
    );
}

it("differs from the profile of other cells in the commands that choose who is signalled for a descriptor", () => {
  const [usual, serving] = [allowing(PROFILE), allowing(servingSeccomp(PROFILE))];
  const differing = (name: string, from: number, count: number): number[] =>
    Array.from({ length: count }, (_, index) => from + index).filter(
      (command) => serving(name, command) !== usual(name, command),
    );
  expect(differing("fcntl", 0, 64)).toEqual([8, 10, 15]);
  expect(differing("fcntl", 1024, 64)).toEqual([]);
  expect([...differing("ioctl", 0x5400, 256), ...differing("ioctl", 0x8800, 0x300)]).toEqual([0x8901, 0x8902]);
  for (const lease of [1024, 1026, 1040]) expect(serving("fcntl", lease)).toBe(false);
  for (const high of [1, 2 ** 20]) expect(serving("ioctl", 0x8901 + high * 2 ** 32)).toBe(false);
  expect([serving("fcntl", 4), serving("fcntl", 1033), serving("ioctl", 0x5401), serving("ioctl", 0x8927)]).toEqual(
    Array(4).fill(true),
  );
});
