import { constants } from "node:fs";
import { open } from "node:fs/promises";
import { join } from "node:path";

export type SecretFile =
  | { readonly ok: true; readonly line: string }
  /** `fault` follows the name of the file, and repeats nothing of its content. */
  | { readonly ok: false; readonly fault: string };

/** What other users know is no secret, and what they can write is theirs. The owner's group may read it. */
const OF_OTHERS = 0o027;
const MAX_BYTES = 65_536;

/** The one line of a file. Blank space around it is not part of the secret. */
export async function readSecretFile(path: string, home: string | undefined): Promise<SecretFile> {
  const place = secretPlace(path, home);
  if (place === null) return { ok: false, fault: "is below a home that is not known" };
  const file = await open(place, constants.O_RDONLY | constants.O_NONBLOCK).catch(() => null);
  if (file === null) return { ok: false, fault: "cannot be opened" };
  await using _ = file;
  const found = await file.stat();
  if (!found.isFile()) return { ok: false, fault: "is not a regular file" };
  if ((found.mode & OF_OTHERS) !== 0)
    return { ok: false, fault: "can be read or written by other users; run `chmod o=,g-w` on it" };
  if (found.size > MAX_BYTES) return { ok: false, fault: `is larger than ${MAX_BYTES} bytes` };
  const text = (await file.readFile("utf8")).trim();
  return /[\r\n]/.test(text) ? { ok: false, fault: "has more than one line" } : { ok: true, line: text };
}

/** The absolute path of a secret's file; null if it is below a home that is not known. */
export function secretPlace(path: string, home: string | undefined): string | null {
  if (!path.startsWith("~/")) return path;
  return home?.startsWith("/") ? join(home, path.slice(2)) : null;
}
