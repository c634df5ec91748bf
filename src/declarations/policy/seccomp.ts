import { readFile } from "node:fs/promises";
import { fileURLToPath } from "node:url";

/**
 * The `corral` seccomp profile as the Engine takes it (`seccomp=JSON`), without the comments that are for people.
 *
 * The Engine reads nothing from this host's disk for an API caller, so the text travels in every plan.
 */
export async function loadSeccompProfile(): Promise<string> {
  const text = await readFile(fileURLToPath(new URL("../../../policies/seccomp.json", import.meta.url)), "utf8");
  return JSON.stringify(JSON.parse(text, (key, value) => (key === "comment" ? undefined : value)));
}
