import { createHash } from "node:crypto";
import { lstat, open } from "node:fs/promises";
import { sha256 } from "../platform/sha256.ts";
import type { Job } from "../run/model/job.ts";
import { hostPathOf, parsePathIn } from "../sandbox/access.ts";

/** What an item ran on that is the same for all items of a fleet: its worker, those that it may call, its sandbox and its image. */
export interface FleetDigest {
  readonly text: string;
}

export function fleetDigest(parts: readonly unknown[]): FleetDigest {
  return { text: sha256(JSON.stringify(parts)) };
}

/**
 * Names what an item runs on: worker, policy, image, input, what it may see, and its attachments by content. Null where
 * an attachment cannot be read: then nothing is known of it.
 */
export async function cacheKeyOf(fleet: FleetDigest, job: Job): Promise<string | null> {
  const attachments: [string, string][] = [];
  for (const { name, host } of job.attachments) {
    const digest = await fileDigest(host).catch(() => null);
    if (digest === null) return null;
    attachments.push([name, digest]);
  }
  return sha256(JSON.stringify([fleet.text, job.input ?? null, job.narrow, attachments]));
}

/** False where a folder that an item was to write is gone, and with it what an earlier run had left there. */
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

/** O_RDONLY | O_NOFOLLOW | O_NONBLOCK of Linux: neither a link nor a FIFO in the file's place does anything. */
const NO_LINK_NO_WAITING = 0o400000 | 0o4000;
