import { appendFile, mkdir, readFile, rm, stat } from "node:fs/promises";
import { dirname } from "node:path";
import { nullFor } from "../platform/errno.ts";

/** A line that was cut by the end of its process, or by a full disk, has no line break of its own: one ends it, two follow a whole line. */
const WHOLE = /(?<=\n)[^\n]+(?=\n(?:\n|$))/g;

/** The whole lines of a file of the state directory that only grows; none if it does not exist. Lines that were cut do not count. */
export async function appendedLines(path: string, maxBytes: number): Promise<string[]> {
  const found = await stat(path).catch(nullFor("ENOENT"));
  if (found === null) return [];
  if (found.size > maxBytes) throw new Error(`${path} is larger than Corral writes it`);
  return (await readFile(path, "utf8")).match(WHOLE) ?? [];
}

/** The line break before it keeps it apart from a line that was cut. */
export async function appendLine(path: string, line: string): Promise<void> {
  await mkdir(dirname(path), { recursive: true, mode: 0o700 });
  await appendFile(path, `\n${line}\n`, { mode: 0o600 });
}

export async function removeLines(path: string): Promise<void> {
  await rm(path, { force: true });
}
