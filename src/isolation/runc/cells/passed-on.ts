import { readFileSync } from "node:fs";
import { getPriority } from "node:os";
import { hasCode } from "../../../platform/errno.ts";

/**
 * The words before the command line of a program, so that it does not have from this process what the Engine's containers do not
 * have either: the Engine is another process than the one that asks it. runc 1.1 sets none of this. What is as usual costs nothing.
 * Throws if this process cannot read what it has.
 *
 * @param gate the static binary, whose programs are used. It has no `chrt` and no `nice`: the machine's own are, and if one is
 *   needed and missing, nothing starts.
 */
export function asByTheEngine(gate: string): string[] {
  const words = [
    // Nothing shows a class for disks, so that is always set. A real-time one would starve the machine.
    [gate, "ionice", "-c", "0"],
    ...(policyIsUsual() ? [] : [["chrt", "--other", "0"]]),
    ...(getPriority() === 0 ? [] : [["nice", "-n", String(-getPriority())]]),
    ...affinity().map((mask) => [gate, "taskset", mask]),
    // The name of the usual one, on a processor of any kind. Others turn off that addresses are random.
    ...(personalityIsUsual() ? [] : [[gate, "linux64"]]),
    // The number of the user who logged in, which a worker could read.
    ...(loginIsUnknown() ? [] : [[gate, "sh", "-c", FORGET_LOGIN, gate]]),
  ];
  return words.flat();
}

/** The kernel may refuse to change the number: then nothing starts, unless it is unknown already. */
const FORGET_LOGIN = `login=
{ echo 4294967295 > /proc/self/loginuid || read -r login < /proc/self/loginuid; } 2> /dev/null
case $login in "" | 4294967295) exec "$@" ;; esac
echo "the number of the user who logged in cannot be hidden from workers: start Corral with CAP_AUDIT_CONTROL" >&2
exit 1`;

/** The 41st field of proc(5)'s `stat`, of which the second may contain anything. */
function policyIsUsual(): boolean {
  const fields = textOf("/proc/self/stat")
    .replace(/^.*\) /s, "")
    .split(" ");
  return fields[38] === "0";
}

/** The mask of all processors, if this process may not use all of them. */
function affinity(): string[] {
  const allowed = /^Cpus_allowed_list:\s*(\S+)$/m.exec(textOf("/proc/self/status"))?.[1];
  const online = textOf("/sys/devices/system/cpu/online").trim();
  if (allowed === undefined || allowed === online) return [];
  const last = Number(/\d+$/.exec(online)?.[0] ?? 0);
  return ["f".repeat(Math.floor(last / 4) + 1)];
}

function personalityIsUsual(): boolean {
  return Number.parseInt(textOf("/proc/self/personality"), 16) === 0;
}

/** Also true on a kernel without it. */
function loginIsUnknown(): boolean {
  return ["", "4294967295"].includes(textOf("/proc/self/loginuid"));
}

/** Empty if the kernel does not have this file. */
function textOf(file: string): string {
  try {
    return readFileSync(file, "latin1");
  } catch (error) {
    if (hasCode(error, "ENOENT")) return "";
    throw error;
  }
}
