import { createHash } from "node:crypto";
import { lstat, open } from "node:fs/promises";
import { sha256 } from "../platform/sha256.ts";
import type { Job } from "../run/model/job.ts";
import { hostPathOf, parsePathIn } from "../sandbox/access.ts";

/** A digest of what all items of a fleet have in common: the worker, the workers that it may call, the sandbox and the image. */
export function fleetDigest(parts: readonly unknown[]): string {
  return sha256(JSON.stringify(parts));
}

/**
 * A digest of everything that an item's result depends on: the fleet's digest, the input, the allowed paths, and the
 * attachments by content. Null if an attachment cannot be read; then the cache is not used.
 */
export async function cacheKeyOf(fleet: string, job: Job): Promise<string | null> {
  const attachments: [string, string][] = [];
  for (const { name, host } of job.attachments) {
    const digest = await fileDigest(host).catch(() => null);
    if (digest === null) return null;
    attachments.push([name, digest]);
  }
  return sha256(JSON.stringify([fleet, job.input ?? null, job.narrow, attachments]));
}

/** False if a directory that the item may write no longer exists: the output of an earlier run is gone then. */
export async function outputsAreThere({ narrow, callerSandbox }: Job): Promise<boolean> {
  for (const path of narrow?.allowWrite ?? []) {
    const parsed = parsePathIn(callerSandbox, path);
    const host = parsed.ok ? hostPathOf(callerSandbox, parsed.path) : null;
    if (host !== null && (await lstat(host).catch(() => null)) === null) return false;
  }
  return true;
}

async function fileDigest(path: string): Promise<string> {
  await using file = await open(path, NO_LINK_NO_WAITING);
  const stats = await file.stat();
  if (!stats.isFile()) throw new Error("no regular file");
  const hash = createHash("sha256");
  for await (const chunk of file.createReadStream({ autoClose: false })) hash.update(chunk as Buffer);
  return hash.digest("hex");
}

/** O_RDONLY | O_NOFOLLOW | O_NONBLOCK on Linux: a link is not followed, and a FIFO does not block. */
const NO_LINK_NO_WAITING = 0o400000 | 0o4000;
