import { createHash } from "node:crypto";

/** In hexadecimal digits. Text is hashed as UTF-8. */
export function sha256(content: string | Uint8Array): string {
  return createHash("sha256").update(content).digest("hex");
}
