import { appendFile, mkdir, readFile, rm, stat } from "node:fs/promises";
import { dirname } from "node:path";
import { nullFor } from "../platform/errno.ts";

/** The whole lines of a file of the state directory that only grows; none if it does not exist. The last line may be cut: it does not count. */
export async function appendedLines(path: string, maxBytes: number): Promise<string[]> {
  const found = await stat(path).catch(nullFor("ENOENT"));
  if (found === null) return [];
  if (found.size > maxBytes) throw new Error(`${path} is larger than Corral writes it`);
  return (await readFile(path, "utf8")).split("\n").slice(0, -1);
}

export async function appendLine(path: string, line: string): Promise<void> {
  await mkdir(dirname(path), { recursive: true, mode: 0o700 });
  await appendFile(path, `${line}\n`, { mode: 0o600 });
}

export async function removeLines(path: string): Promise<void> {
  await rm(path, { force: true });
}
