import { constants } from "node:fs";
import { open, rename, rm } from "node:fs/promises";
import { hasCode } from "../platform/errno.ts";
import { openRegular } from "../platform/open-regular.ts";
import { type Head, sealedHead, unsealedHead } from "./seal.ts";

/** `absent`: there is no such file. `broken`: its content was not sealed with this key. */
export type ReadHead = Head | "absent" | "broken";

/** Longer than any head. */
const MAX_HEAD_BYTES = 4096;

export async function readHead(path: string, key: Buffer): Promise<ReadHead> {
  try {
    await using file = await openRegular(path, constants.O_RDONLY);
    const { buffer, bytesRead } = await file.read(Buffer.alloc(MAX_HEAD_BYTES), 0, MAX_HEAD_BYTES, 0);
    return unsealedHead(key, buffer.toString("utf8", 0, bytesRead)) ?? "broken";
  } catch (error) {
    if (hasCode(error, "ENOENT")) return "absent";
    throw error;
  }
}

/** Replaces the head atomically, also across a power failure. The caller must hold the trail's lock. */
export async function writeHead(path: string, key: Buffer, head: Head): Promise<void> {
  const draft = `${path}.new`;
  // Left by a crash, if it is there.
  await rm(draft, { force: true });
  const handle = await open(draft, "wx", 0o600);
  try {
    await handle.writeFile(sealedHead(key, head));
    await handle.datasync();
  } finally {
    await handle.close();
  }
  await rename(draft, path);
}
