import { createHash } from "node:crypto";

/** The name that git has for a file's content. */
export function blobId(content: Uint8Array): string {
  return createHash("sha1").update(`blob ${content.length}\0`).update(content).digest("hex");
}

export function isCommitId(text: string): boolean {
  return /^[0-9a-f]{40}$/.test(text);
}
