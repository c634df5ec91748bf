import { open, readFile, rename } from "node:fs/promises";
import { hasCode } from "../platform/errno.ts";
import { type Head, sealedHead, unsealedHead } from "./seal.ts";

/** `absent` where there is no such file, `broken` where this key did not seal what is in it. */
export type ReadHead = Head | "absent" | "broken";

export async function readHead(path: string, key: Buffer): Promise<ReadHead> {
  try {
    return unsealedHead(key, await readFile(path, "utf8")) ?? "broken";
  } catch (error) {
    if (hasCode(error, "ENOENT")) return "absent";
    throw error;
  }
}

/** Whole at every moment, and after a power cut. Only for whoever holds the trail's lock. */
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
