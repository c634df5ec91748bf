import { randomBytes } from "node:crypto";
import { readdir, readFile } from "node:fs/promises";
import { join } from "node:path";
import { nullFor } from "../../src/platform/errno.ts";

/** A key of a model's provider that must be nowhere but at the provider. */
export interface CanaryKey {
  /** With characters that JSON, addresses and shells write differently. */
  readonly key: string;
  /** Two parts, each of which is no trace of it: for a program that looks for it. */
  readonly halves: readonly [string, string];
  /** True where a text holds it in whatever form. */
  isIn(text: string): boolean;
}

export function canaryKey(): CanaryKey {
  const core = randomBytes(12).toString("hex");
  const key = `sk-"canary"\\/+${core}=`;
  // Base64 of a text depends on what stands before it, by one of three ways; its ends also on what stands beside it.
  const base64 = [0, 1, 2].map((before) =>
    Buffer.from("x".repeat(before) + core)
      .toString("base64")
      .slice(4, -4),
  );
  const escaped = [...core].map((letter) => `\\u${letter.charCodeAt(0).toString(16).padStart(4, "0")}`).join("");
  const traces = [core, ...base64, Buffer.from(core).toString("hex"), escaped];
  const middle = key.length - 12;
  return {
    key,
    halves: [key.slice(0, middle), key.slice(middle)],
    isIn: (text) => traces.some((trace) => text.includes(trace)),
  };
}

/** Every file below a folder that holds it in its name or in its content, and every link that does. */
export async function tracesBelow(dir: string, canary: CanaryKey): Promise<string[]> {
  const found: string[] = [];
  // What is removed meanwhile holds nothing any more.
  for (const entry of (await readdir(dir, { withFileTypes: true }).catch(nullFor("ENOENT"))) ?? []) {
    const path = join(dir, entry.name);
    if (entry.isDirectory()) found.push(...(await tracesBelow(path, canary)));
    // What is renamed meanwhile is found by its new name.
    const content = entry.isFile() ? ((await readFile(path, "latin1").catch(nullFor("ENOENT"))) ?? "") : "";
    if (canary.isIn(path) || canary.isIn(content)) found.push(path);
  }
  return found;
}
