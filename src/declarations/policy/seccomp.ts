import { readFile } from "node:fs/promises";
import { join } from "node:path";
import { PACKAGE_ROOT } from "../place/package-root.ts";

/**
 * The `corral` seccomp profile as the Engine takes it (`seccomp=JSON`), without the comments that are for people.
 *
 * The Engine reads nothing from this host's disk for an API caller, so the text travels in every plan.
 */
export async function loadSeccompProfile(): Promise<string> {
  const text = await readFile(join(PACKAGE_ROOT, "policies/seccomp.json"), "utf8");
  return JSON.stringify(JSON.parse(text, (key, value) => (key === "comment" ? undefined : value)));
}
