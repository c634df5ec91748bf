import { createHmac, randomBytes } from "node:crypto";
import { readFileSync, readlinkSync } from "node:fs";
import { mkdir, readFile } from "node:fs/promises";
import { hostname } from "node:os";
import { hasCode } from "../platform/errno.ts";
import { writeIfMissing } from "../platform/write-file.ts";
import type { LockOwner } from "./file-lock.ts";
import { statePaths } from "./state-dir.ts";

/**
 * One orchestrator process, identified among all that were or will be: the machine, its boot, the process
 * namespace, the pid, and the time at which that pid started (in clock ticks since boot, proc(5)).
 */
export interface Owner {
  readonly machine: string;
  readonly boot: string;
  readonly pidNamespace: string;
  readonly pid: number;
  readonly startTicks: string;
}

/** Throws if the kernel cannot be asked: an owner without its boot or its start would look dead to others, or others to it. */
export function currentOwner(): Owner {
  return {
    machine: `${textOrNone("/etc/machine-id")}@${hostname()}`,
    boot: textOrNone("/proc/sys/kernel/random/boot_id"),
    pidNamespace: readlinkSync("/proc/self/ns/pid"),
    pid: process.pid,
    startTicks: startTicksOf(process.pid) ?? "",
  };
}

export function formatOwner(owner: Owner): string {
  return [owner.machine, owner.boot, owner.pidNamespace, owner.pid, owner.startTicks].join("|");
}

export function parseOwner(text: string): Owner | null {
  const [machine, boot, pidNamespace, pid, startTicks, ...rest] = text.split("|");
  if (startTicks === undefined || rest.length > 0 || !/^[1-9]\d*$/.test(pid ?? "")) return null;
  return { machine: machine ?? "", boot: boot ?? "", pidNamespace: pidNamespace ?? "", pid: Number(pid), startTicks };
}

/**
 * Has this owner certainly ended? A process of another machine, or of a process namespace that is not visible from here,
 * may be alive: if that cannot be known, the answer is no.
 */
export function isDead(owner: Owner, self: Owner): boolean {
  if (owner.machine !== self.machine) return false;
  if (owner.boot !== self.boot) return true;
  if (owner.pidNamespace !== self.pidNamespace) return false;
  try {
    return startTicksOf(owner.pid) !== owner.startTicks;
  } catch {
    // The process table cannot be read now, e.g. because this process has no free descriptor.
    return false;
  }
}

/** Does this owner certainly run? If that cannot be known, the answer is no. */
export function isAlive(owner: Owner, self: Owner): boolean {
  const isVisible =
    owner.machine === self.machine && owner.boot === self.boot && owner.pidNamespace === self.pidNamespace;
  return isVisible && !isDead(owner, self);
}

/** Can it not be seen from the process `self` whether this owner runs, since it belongs to another machine or process namespace? */
export function isOutOfSight(owner: string, self: string): boolean {
  const [one, other] = [parseOwner(owner), parseOwner(self)];
  if (one === null || other === null) return false;
  return one.machine !== other.machine || one.pidNamespace !== other.pidNamespace;
}

/** This process as the owner of Corral's locks. A name that cannot be parsed may belong to a living process. */
export function lockOwner(): LockOwner {
  const self = currentOwner();
  return {
    name: formatOwner(self),
    isDead: (name) => {
      const owner = parseOwner(name);
      return owner !== null && isDead(owner, self);
    },
  };
}

/** Null if no such process runs. A zombie has ended too. */
function startTicksOf(pid: number): string | null {
  const stat = textOrNone(`/proc/${pid}/stat`);
  const [state, ...fields] = stat.slice(stat.lastIndexOf(")") + 2).split(" ");
  return stat === "" || state === "Z" || state === "X" ? null : (fields[18] ?? null);
}

/** Empty if there is none. */
function textOrNone(path: string): string {
  try {
    return readFileSync(path, "utf8").trim();
  } catch (error) {
    if (hasCode(error, "ENOENT", "ESRCH")) return "";
    throw error;
  }
}

export const KEY_BYTES = 32;

/**
 * The secret that seals the labels of what this state directory's orchestrators make. An image may carry any label, so a
 * label alone proves nothing: without the seal, a foreign container could look like a dead owner's.
 */
export async function loadSealKey(stateDir: string): Promise<Buffer> {
  const path = statePaths(stateDir).sealKey;
  await mkdir(stateDir, { recursive: true, mode: 0o700 });
  const existing = await readFile(path).catch(() => null);
  if (existing !== null) return whole(existing, path);
  await writeIfMissing(path, randomBytes(KEY_BYTES));
  return whole(await readFile(path), path);
}

/** The same, where it was made already. @throws if there is none */
export function readSealKey(stateDir: string): Buffer {
  const path = statePaths(stateDir).sealKey;
  return whole(readFileSync(path), path);
}

/** A shortened or empty key could be guessed, and with it every seal. */
function whole(key: Buffer, path: string): Buffer {
  if (key.length !== KEY_BYTES)
    throw new Error(`${path} is not a complete key. Remove it, and by hand the containers and volumes that it sealed`);
  return key;
}

/**
 * The seal of a container, volume or cell of this name, made by this owner for this run.
 */
export function sealOf(
  key: Buffer,
  thing: { kind: "container" | "volume" | "cell"; name: string; run: string; owner: string },
): string {
  return createHmac("sha256", key).update([thing.kind, thing.name, thing.run, thing.owner].join("\0")).digest("hex");
}
