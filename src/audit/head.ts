import { open, readFile, rename } from "node:fs/promises";
import { hasCode } from "../platform/errno.ts";
import { type Head, sealedHead, unsealedHead } from "./seal.ts";

/** `absent`: there is no such file. `broken`: its content was not sealed with this key. */
export type ReadHead = Head | "absent" | "broken";

export async function readHead(path: string, key: Buffer): Promise<ReadHead> {
  try {
    return unsealedHead(key, await readFile(path, "utf8")) ?? "broken";
  } catch (error) {
    if (hasCode(error, "ENOENT")) return "absent";
    throw error;
  }
}

/** Replaces the head atomically, also across a power failure. The caller must hold the trail's lock. */
export async function writeHead(path: string, key: Buffer, head: Head): Promise<void> {
  const draft = `${path}.new`;
  const handle = await open(draft, "w", 0o600);
  try {
    await handle.writeFile(sealedHead(key, head));
    await handle.datasync();
  } finally {
    await handle.close();
  }
  await rename(draft, path);
}
