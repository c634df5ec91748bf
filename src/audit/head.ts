import type { KeyObject } from "node:crypto";
import fs, { constants } from "node:fs";
import { promisify } from "node:util";
import { hasCode } from "../platform/errno.ts";
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

/** Replaces the head atomically, also across a power failure. The caller must hold the trail's lock. */
export async function writeHead(path: string, key: KeyObject, head: Head): Promise<void> {
  const draft = `${path}.new`;
  const fd = openDraft(draft);
  try {
    fs.writeFileSync(fd, sealedHead(key, head));
    await flushed(fd);
  } finally {
    fs.closeSync(fd);
  }
  fs.renameSync(draft, path);
}

const flushed = promisify(fs.fdatasync);

function openDraft(path: string): number {
  try {
    return fs.openSync(path, "wx", 0o600);
  } catch (error) {
    if (!hasCode(error, "EEXIST")) throw error;
  }
  // Left by a crash.
  fs.rmSync(path, { force: true });
  return fs.openSync(path, "wx", 0o600);
}
