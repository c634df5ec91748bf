import type { KeyObject } from "node:crypto";
import fs, { constants } from "node:fs";
import { rename, rm } from "node:fs/promises";
import { promisify } from "node:util";
import { hasCode, nullFor } from "../platform/errno.ts";
import { openRegularNow } from "../platform/open-regular.ts";
import { type Head, sealedHead, unsealedHead } from "./seal.ts";

/** `absent`: there is no such file. `broken`: its content was not sealed with this key. */
export type ReadHead = Head | "absent" | "broken";

/** Longer than any head. */
const MAX_HEAD_BYTES = 4096;

export function readHead(path: string, key: KeyObject): ReadHead {
  try {
    using file = openRegularNow(path, constants.O_RDONLY);
    const bytes = Buffer.allocUnsafe(MAX_HEAD_BYTES);
    const read = fs.readSync(file.fd, bytes, 0, MAX_HEAD_BYTES, 0);
    return unsealedHead(key, bytes.toString("utf8", 0, read)) ?? "broken";
  } catch (error) {
    if (hasCode(error, "ENOENT")) return "absent";
    throw error;
  }
}

/**
 * Replaces the head atomically, also across a power failure. The caller must hold the trail's lock. What changes the directory
 * is left to another thread: it can wait for a flush to the same disk.
 */
export async function writeHead(path: string, key: KeyObject, head: Head): Promise<void> {
  const draft = `${path}.new`;
  const fd = await openDraft(draft);
  try {
    fs.writeFileSync(fd, sealedHead(key, head));
    await flushed(fd);
  } finally {
    fs.closeSync(fd);
  }
  await rename(draft, path);
}

const flushed = promisify(fs.fdatasync);

const opened = promisify(fs.open);

async function openDraft(path: string): Promise<number> {
  const made = await opened(path, "wx", 0o600).catch(nullFor("EEXIST"));
  if (made !== null) return made;
  // Left by a crash.
  await rm(path, { force: true });
  return await opened(path, "wx", 0o600);
}
