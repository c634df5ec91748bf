import { randomUUID } from "node:crypto";
import { chmod, copyFile, link, lstat, mkdir, rename, rm } from "node:fs/promises";
import { basename, dirname, join } from "node:path";
import { nullFor } from "../../platform/errno.ts";

/**
 * A copy of the gate that only root can read and everyone can execute: then the kernel lets no process of the same user
 * trace it or open its descriptors (ptrace(2), `PR_SET_DUMPABLE`).
 */
export async function closedGate(gate: string): Promise<string> {
  const path = closedPath(gate);
  const dir = dirname(path);
  if ((await knownClosedGate(gate)) !== null) return path;
  const closed = await lstat(path).catch(() => null);
  await mkdir(dir, { recursive: true, mode: 0o755 });
  const draft = join(dir, `.${randomUUID()}`);
  await copyFile(gate, draft);
  await chmod(draft, 0o111);
  if (closed !== null) await rename(draft, path);
  else {
    // If the name exists already, another process made it just now and starts cells with that file: it stays.
    await link(draft, path).catch(nullFor("EEXIST"));
    await rm(draft);
  }
  return path;
}

/** The copy that was made before, or null. */
export async function knownClosedGate(gate: string): Promise<string | null> {
  const path = closedPath(gate);
  const [original, closed] = await Promise.all([lstat(gate), lstat(path).catch(() => null)]);
  return closed?.isFile() && (closed.mode & 0o777) === 0o111 && closed.size === original.size ? path : null;
}

function closedPath(gate: string): string {
  return join(dirname(gate), "closed", basename(gate));
}
