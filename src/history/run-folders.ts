import { randomUUID } from "node:crypto";
import { readdir, rename, rm } from "node:fs/promises";
import { dirname, join } from "node:path";
import { nullFor } from "../platform/errno.ts";

/** The folder of one root run. Its name has the time at which it began, so that the newest are found without reading any. */
export interface RunFolder {
  readonly run: string;
  readonly dir: string;
  /** Milliseconds since 1970. */
  readonly beganMs: number;
}

const NAME = /^(\d{4})(\d\d)(\d\d)T(\d\d)(\d\d)(\d\d)(\d{3})Z-([0-9a-f]{12})$/;
const PROJECT = /^[0-9a-f]{16}$/;
/** A record that is being removed. */
const REMOVED = ".removed-";
/** More projects than any state directory has; the rest is not read. */
const MAX_PROJECTS = 10_000;

/** Only of Corral's own: the id of a run is 12 hex digits. */
export function runFolderName(run: string, beganMs: number): string {
  const name = `${new Date(beganMs).toISOString().replaceAll(/[-:.]/g, "")}-${run}`;
  if (!NAME.test(name)) throw new RangeError("that is not the id of a run");
  return name;
}

/** Those of one project, the newest first. What has another name is left out. */
export async function runFolders(projectRuns: string): Promise<RunFolder[]> {
  const names = (await readdir(projectRuns).catch(nullFor("ENOENT", "ENOTDIR"))) ?? [];
  return names
    .toSorted((a, b) => (a < b ? 1 : -1))
    .flatMap((name) => {
      const [, year, month, day, hours, minutes, seconds, ms, run] = NAME.exec(name) ?? [];
      if (run === undefined) return [];
      const beganMs = Date.parse(`${year}-${month}-${day}T${hours}:${minutes}:${seconds}.${ms}Z`);
      return [{ run, dir: join(projectRuns, name), beganMs: Number.isNaN(beganMs) ? 0 : beganMs }];
    });
}

/** The folders of all projects of a state directory. */
export async function projectFolders(runsDir: string): Promise<string[]> {
  const names = (await readdir(runsDir).catch(nullFor("ENOENT", "ENOTDIR"))) ?? [];
  return names
    .filter((name) => PROJECT.test(name))
    .slice(0, MAX_PROJECTS)
    .map((name) => join(runsDir, name));
}

/** Removes a record; false if another process was faster. It is renamed first, so that no reader sees a part of it. */
export async function removeRunFolder(dir: string): Promise<boolean> {
  const away = join(dirname(dir), `${REMOVED}${randomUUID()}`);
  if ((await rename(dir, away).then(() => true, nullFor("ENOENT"))) === null) return false;
  await rm(away, { recursive: true, force: true });
  return true;
}

/** Removes what a process that died in the middle of a removal left. */
export async function clearRemoved(projectRuns: string): Promise<void> {
  const names = (await readdir(projectRuns).catch(nullFor("ENOENT", "ENOTDIR"))) ?? [];
  for (const name of names.filter((one) => one.startsWith(REMOVED)))
    await rm(join(projectRuns, name), { recursive: true, force: true });
}
