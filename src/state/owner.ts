import { createHmac, randomBytes } from "node:crypto";
import { readFileSync, readlinkSync } from "node:fs";
import { mkdir, readFile } from "node:fs/promises";
import { hostname } from "node:os";
import { writeIfMissing } from "../platform/write-file.ts";
import type { LockOwner } from "./file-lock.ts";
import { statePaths } from "./state-paths.ts";

/**
 * One orchestrator process, told apart from every other that was or will be: the machine, its boot, the process
 * namespace, the pid, and the time at which that pid started (in clock ticks since boot, proc(5)).
 */
export interface Owner {
  readonly machine: string;
  readonly boot: string;
  readonly pidNamespace: string;
  readonly pid: number;
  readonly startTicks: string;
}

export function currentOwner(): Owner {
  return {
    machine: `${readOr("/etc/machine-id", "")}@${hostname()}`,
    boot: readOr("/proc/sys/kernel/random/boot_id", ""),
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
 * Is this owner certainly gone? A process of another machine, or of a process namespace that cannot be seen from
 * here, may be alive: what cannot be known is left alone.
 */
export function isDead(owner: Owner, self: Owner): boolean {
  if (owner.machine !== self.machine) return false;
  if (owner.boot !== self.boot) return true;
  if (owner.pidNamespace !== self.pidNamespace) return false;
  return startTicksOf(owner.pid) !== owner.startTicks;
}

/** This process, as whoever holds a lock of Corral's is told apart. What is no owner at all may be alive. */
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

/** Null where no such process runs; a zombie has ended, and only waits for its parent to notice. */
function startTicksOf(pid: number): string | null {
  const stat = readOr(`/proc/${pid}/stat`, "");
  const [state, ...fields] = stat.slice(stat.lastIndexOf(")") + 2).split(" ");
  return stat === "" || state === "Z" || state === "X" ? null : (fields[18] ?? null);
}

function readOr(path: string, otherwise: string): string {
  try {
    return readFileSync(path, "utf8").trim();
  } catch {
    return otherwise;
  }
}

const KEY_BYTES = 32;

/**
 * The secret with which one state directory seals the labels of what it makes. An image may carry any label, so a
 * label alone proves nothing: without the seal a foreign container could be made to look like a dead owner's.
 */
export async function loadSealKey(stateDir: string): Promise<Buffer> {
  const path = statePaths(stateDir).sealKey;
  await mkdir(stateDir, { recursive: true, mode: 0o700 });
  const existing = await readFile(path).catch(() => null);
  if (existing !== null) return whole(existing, path);
  await writeIfMissing(path, randomBytes(KEY_BYTES));
  return whole(await readFile(path), path);
}

/** A key that is cut short, or empty, could be guessed, and with it every seal. */
function whole(key: Buffer, path: string): Buffer {
  if (key.length !== KEY_BYTES) throw new Error(`${path} is not a whole key; remove it, and what it sealed by hand`);
  return key;
}

/** The seal of a thing of this kind and name, made by this owner for this run. */
export function sealOf(
  key: Buffer,
  thing: { kind: "container" | "volume"; name: string; run: string; owner: string },
): string {
  return createHmac("sha256", key).update([thing.kind, thing.name, thing.run, thing.owner].join("\0")).digest("hex");
}
