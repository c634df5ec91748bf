import { mkdir, readdir, rm, writeFile } from "node:fs/promises";
import { join } from "node:path";
import { livingOwnerDirs } from "./live-dir.ts";
import type { Owner } from "./owner.ts";

/** In each owner's directory, an empty file for each fleet that it runs. */
const FLEETS_DIR = "fleets";

/** Tells all orchestrators of a state directory that a fleet runs, until it is disposed of. */
export async function announceFleet(ownerDir: string, id: string): Promise<AsyncDisposable> {
  const file = join(ownerDir, FLEETS_DIR, id);
  await mkdir(join(ownerDir, FLEETS_DIR), { recursive: true, mode: 0o700 });
  await writeFile(file, "", { mode: 0o600 });
  return { [Symbol.asyncDispose]: () => rm(file, { force: true }) };
}

/** The fleets of all orchestrators of a state directory, of whatever project, that are not certainly dead. */
export async function countLiveFleets(liveDir: string, self: Owner): Promise<number> {
  const dirs = await livingOwnerDirs(liveDir, self);
  const fleets = await Promise.all(dirs.map((dir) => readdir(join(dir, FLEETS_DIR)).catch(() => [])));
  return fleets.flat().length;
}
