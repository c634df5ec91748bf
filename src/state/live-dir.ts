import { randomBytes } from "node:crypto";
import { mkdir, readdir, readFile, rm, rmdir, writeFile } from "node:fs/promises";
import { join } from "node:path";
import { detachMountsBelow } from "../files/host/kernel-mounts.ts";
import { removeTree } from "../files/host/remove-tree.ts";
import { formatOwner, isDead, type Owner, parseOwner } from "./owner.ts";

/** In each owner's directory, the file that identifies it. */
const OWNER_FILE = "owner";
/** More orchestrators than any machine runs; the rest is not read. */
const MAX_OWNERS = 10_000;

/**
 * Makes a temporary directory below `liveDir` for the sockets of an orchestrator's runs. Each call makes another one,
 * because one process may open several projects and close them one by one. Its name is short, because the path of a Unix
 * socket has at most 107 bytes. No other user can enter the state directory above; in the cell its files must be reachable.
 */
export async function makeOwnerDir(liveDir: string, owner: Owner): Promise<string> {
  const dir = join(liveDir, randomBytes(5).toString("hex"));
  await mkdir(dir, { recursive: true, mode: 0o755 });
  await writeFile(join(dir, OWNER_FILE), formatOwner(owner));
  return dir;
}

/** Also detaches views that are still mounted in it, because their runs did not end in order. */
export async function removeOwnerDir(dir: string): Promise<void> {
  await detachMountsBelow(dir);
  if (!(await removedAtOnce(dir))) await removeTree(dir);
}

/** Most directories have nothing left but the owner. To start a program for that would take most of the time of an end. */
async function removedAtOnce(dir: string): Promise<boolean> {
  try {
    const names = await readdir(dir);
    if (names.some((name) => name !== OWNER_FILE)) return false;
    await rm(join(dir, OWNER_FILE), { force: true });
    await rmdir(dir);
    return true;
  } catch {
    return false;
  }
}

/** Removes the directories of owners that are certainly dead; returns their names. */
export async function reapLiveDirs(liveDir: string, self: Owner): Promise<string[]> {
  const removed: string[] = [];
  for (const { name, owner } of await ownerDirs(liveDir)) {
    if (!isDead(owner, self)) continue;
    await removeOwnerDir(join(liveDir, name));
    removed.push(name);
  }
  return removed;
}

/** The directories of owners that are not certainly dead. Absolute if `liveDir` is. */
export async function livingOwnerDirs(liveDir: string, self: Owner): Promise<string[]> {
  const living = (await ownerDirs(liveDir)).filter(({ owner }) => !isDead(owner, self));
  return living.map(({ name }) => join(liveDir, name));
}

/** The owners that are not certainly dead. */
export async function livingOwners(liveDir: string, self: Owner): Promise<Owner[]> {
  return (await ownerDirs(liveDir)).map(({ owner }) => owner).filter((owner) => !isDead(owner, self));
}

/** The names of the directories of owners that are certainly dead: what {@link reapLiveDirs} would remove. */
export async function deadOwnerDirs(liveDir: string, self: Owner): Promise<string[]> {
  return (await ownerDirs(liveDir)).filter(({ owner }) => isDead(owner, self)).map(({ name }) => name);
}

async function ownerDirs(liveDir: string): Promise<{ readonly name: string; readonly owner: Owner }[]> {
  const found: { name: string; owner: Owner }[] = [];
  const names = await readdir(liveDir).catch(() => [] as string[]);
  for (const name of names.slice(0, MAX_OWNERS)) {
    const owner = parseOwner(await readFile(join(liveDir, name, OWNER_FILE), "utf8").catch(() => ""));
    if (owner !== null) found.push({ name, owner });
  }
  return found;
}

/** In each owner's directory, an empty file for each fleet that it runs. */
const FLEETS_DIR = "fleets";

/** Announces a running fleet to all orchestrators of a state directory, until it is disposed. */
export async function announceFleet(ownerDir: string, id: string): Promise<AsyncDisposable> {
  const file = join(ownerDir, FLEETS_DIR, id);
  await mkdir(join(ownerDir, FLEETS_DIR), { recursive: true, mode: 0o700 });
  await writeFile(file, "", { mode: 0o600 });
  return { [Symbol.asyncDispose]: () => rm(file, { force: true }) };
}

/** The number of fleets of all orchestrators of a state directory, of any project, that are not certainly dead. */
export async function countLiveFleets(liveDir: string, self: Owner): Promise<number> {
  const dirs = await livingOwnerDirs(liveDir, self);
  const fleets = await Promise.all(dirs.map((dir) => readdir(join(dir, FLEETS_DIR)).catch(() => [])));
  return fleets.flat().length;
}
