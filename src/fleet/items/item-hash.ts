import { createHash } from "node:crypto";
import { constants } from "node:fs";
import { contentOf } from "../../files/host/content.ts";
import { pinned } from "../../files/host/roots.ts";
import { sha256 } from "../../platform/sha256.ts";
import type { ItemTemplate, ManifestItem } from "../model/item.ts";

const CHUNK_BYTES = 1024 * 1024;

/** True if a template has `{hash}` or `{hash:N}`: only then files are read. */
export function usesHash(template: ItemTemplate): boolean {
  return /\{\s*hash(:\d+)?\s*\}/.test(JSON.stringify(template));
}

/** The SHA-256 of a file's content; of any other item, of its record as JSON with sorted keys and without spaces. */
export async function hashOf({ file, record }: ManifestItem): Promise<NonNullable<ManifestItem["hash"]>> {
  if (file !== undefined) return await fileHash(file);
  try {
    return { ok: true, value: sha256(JSON.stringify(record, sorted)) };
  } catch {
    return { ok: false, fault: "the item has no `hash`: it is not JSON" };
  }
}

/** No link is followed: a worker may have planted one since the file was found. */
async function fileHash(path: string): Promise<NonNullable<ManifestItem["hash"]>> {
  const unreadable = {
    ok: false,
    fault: "the file has no `hash`: it cannot be read, or it is no regular file",
  } as const;
  using found = pinned(path);
  if (found === null || !found.stat().isFile()) return unreadable;
  try {
    using file = found.reopen(constants.O_RDONLY);
    const content = contentOf(file);
    const hash = createHash("sha256");
    for (let at = 0; at < content.size; ) {
      const chunk = await content.read(at, CHUNK_BYTES);
      if (chunk.length === 0) break;
      at += chunk.length;
      hash.update(chunk);
    }
    return { ok: true, value: hash.digest("hex") };
  } catch (error) {
    if (!(error instanceof Error && "syscall" in error)) throw error;
    return unreadable;
  }
}

function sorted(_: string, value: unknown): unknown {
  if (typeof value !== "object" || value === null || Array.isArray(value)) return value;
  return Object.fromEntries(Object.entries(value).toSorted(([a], [b]) => (a < b ? -1 : 1)));
}
