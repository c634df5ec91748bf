import { chmod, lstat, mkdir, readdir, rename, rm, stat } from "node:fs/promises";
import { homedir } from "node:os";
import { dirname, isAbsolute, join, resolve } from "node:path";
import { removeTree } from "../files/host/system-program.ts";
import { hasCode, nullFor } from "../platform/errno.ts";
import { sha256 } from "../platform/sha256.ts";

/** An entry of a directory of the state; a link is itself, and not what it leads to. */
export interface StateEntry {
  readonly name: string;
  readonly path: string;
  readonly isFolder: boolean;
  readonly bytes: number;
  readonly modifiedMs: number;
}

/** More entries of one directory are not read. */
const MAX_ENTRIES = 1_000_000;

/** Those whose name fits; none if the directory does not exist. */
export async function stateEntries(dir: string, fits: RegExp): Promise<StateEntry[]> {
  const names = (await readdir(dir).catch(nullFor("ENOENT", "ENOTDIR"))) ?? [];
  const entries: StateEntry[] = [];
  for (const name of names.filter((one) => fits.test(one)).slice(0, MAX_ENTRIES)) {
    const path = join(dir, name);
    const found = await lstat(path).catch(nullFor("ENOENT"));
    if (found === null) continue;
    const { blocks, mtimeMs } = found;
    entries.push({ name, path, isFolder: found.isDirectory(), bytes: blocks * 512, modifiedMs: mtimeMs });
  }
  return entries;
}

/** False if another process was faster. A folder is renamed first, so that no other process uses a part of it. */
export async function removeStateEntry({ path, isFolder }: StateEntry): Promise<boolean> {
  if (!isFolder) return (await rm(path).then(() => true, nullFor("ENOENT"))) ?? false;
  const away = `${path}.removed`;
  if ((await rename(path, away).then(() => true, nullFor("ENOENT", "ENOTEMPTY", "EEXIST"))) === null) return false;
  await removeTree(away);
  return true;
}

/** The state directory cannot be used. The message says why, and what to do. */
export class StateDirError extends Error {
  override readonly name = "StateDirError";
}

/**
 * Where Corral keeps what it must remember between commands: `$CORRAL_STATE_DIR`, else `$XDG_STATE_HOME/corral`,
 * else `~/.local/state/corral`. Absolute. {@link makeStateDir} makes it.
 *
 * A relative XDG_STATE_HOME is ignored, as the XDG base directory specification asks.
 */
export function stateDirFrom(env: Readonly<Record<string, string | undefined>>): string {
  if (env.CORRAL_STATE_DIR) return resolve(env.CORRAL_STATE_DIR);
  if (env.XDG_STATE_HOME && isAbsolute(env.XDG_STATE_HOME)) return join(env.XDG_STATE_HOME, "corral");
  return join(env.HOME || homedir(), ".local", "state", "corral");
}

/** Node's own `recursive` never ends where a file system, such as /proc, says of a folder that it takes none in it: it makes that folder again. */
async function makeAncestors(dir: string): Promise<void> {
  const isThere = await stat(dir).then(() => true, nullFor("ENOENT"));
  if (isThere) return;
  await makeAncestors(dirname(dir));
  await mkdir(dir).catch((error: unknown) => {
    if (!hasCode(error, "EEXIST")) throw error;
  });
}

/**
 * Makes the state directory with mode 0700 if it is missing. Directories above it get the usual mode.
 *
 * @throws StateDirError if it cannot be made, or if another user can write there: that user could replace the seal's
 *   key, the gate of every cell, and code that runs on the host.
 */
export async function makeStateDir(stateDir: string): Promise<void> {
  const impossible = (why: string): StateDirError =>
    new StateDirError(
      `the state directory ${stateDir} cannot be created: ${why}. Set CORRAL_STATE_DIR to a directory that you can write`,
    );
  try {
    await makeAncestors(dirname(stateDir));
    await mkdir(stateDir, { mode: 0o700 });
  } catch (error) {
    if (!hasCode(error, "EEXIST")) throw impossible((error as Error).message);
  }
  const found = await stat(stateDir).catch((error: Error) => {
    throw impossible(error.message);
  });
  const { uid, mode } = found;
  if (!found.isDirectory()) throw impossible("a file of that name is not a directory");
  if (uid !== process.geteuid?.() || (mode & 0o022) !== 0)
    throw new StateDirError(
      `the state directory ${stateDir} is writable by other users. Use a directory of your own with mode 0700`,
    );
}

/** Makes a directory of the state, open to its owner alone, and every directory above it that is missing. */
export async function makeClosedDir(dir: string): Promise<void> {
  await mkdir(dir, { recursive: true, mode: 0o700 });
  const { mode, uid } = await stat(dir);
  if ((mode & 0o077) !== 0 && uid === process.getuid?.()) await chmod(dir, 0o700);
}

/*
 * Everything that Corral keeps on disk, each path once. Only Corral writes there, and no cell may be shown any of it.
 * The table in docs/state.md says what is where, and what happens to it after a crash.
 */

/** `stateDir`: absolute, as `stateDirFrom` returns it. */
export function statePaths(stateDir: string) {
  return {
    /** One directory for each living orchestrator: its sockets, views, grants and fleets. */
    live: join(stateDir, "live"),
    /** The secret that seals the labels of what Corral makes. */
    sealKey: join(stateDir, "seal.key"),
    /** Changesets that are being applied or wait for a decision. */
    changes: join(stateDir, "changes"),
    /** The static binary that verifies each cell from inside, by its SHA-256. */
    gate: join(stateDir, "gate"),
    /** `hosts` and `resolv.conf` of cells without a network. */
    names: join(stateDir, "names"),
    /** Files that cells with the same content share, by its digest. */
    sharedNames: join(stateDir, "names", "shared"),
    /** Which containers each process started on an Engine. */
    startedContainers: join(stateDir, "containers"),
    /** Cells that Corral makes with runc itself. */
    runc: join(stateDir, "runc"),
    /** Cells that Corral makes with bubblewrap. */
    bwrap: join(stateDir, "bwrap"),
    /** Which Debian the images are built on. */
    imagesRecord: join(stateDir, "images.json"),
    /** What was seen in images that are not Corral's. */
    examinedImages: join(stateDir, "images-examined.json"),
    /** Held by the one process that builds images. */
    imagesLock: join(stateDir, "images.lock"),
    /** What is kept of runs that users and programs started, by project. */
    runs: join(stateDir, "runs"),
    /** Packages that were prepared for cells, by the digest of what they are made of. */
    environments: join(stateDir, "environments"),
    /** Copies of directories of other machines, by the digest of their manifests. */
    mirrors: join(stateDir, "mirrors"),
    /** The directories of images as those of one user: what writable roots show at first. */
    roots: join(stateDir, "roots"),
    /** What sessions showed at some moment, by project. */
    snapshots: join(stateDir, "snapshots"),
    /** Questions and how they were decided, by project. */
    inbox: join(stateDir, "inbox"),
    /** Tokens, events and fleets of `corral serve`. */
    service: join(stateDir, "service"),
    /** The project of the conversions of `corral serve`. It has no files: those of its clients are elsewhere. */
    conversions: join(stateDir, "service", "conversions"),
    /** Node's compile cache of the command line. */
    compiled: join(stateDir, "compiled"),
  };
}

/** The name of a project wherever names must be short. `projectDir`: absolute, without symbolic links. */
export function projectMark(projectDir: string): string {
  return sha256(projectDir).slice(0, 16);
}

/** The audit trail of one project. */
export type TrailPaths = ReturnType<typeof projectPaths>["trail"];

/** What is kept of one project. `projectDir`: absolute, without symbolic links, so that one project has one name. */
export function projectPaths(stateDir: string, projectDir: string) {
  const name = projectMark(projectDir);
  const trailDir = join(stateDir, "audit", name);
  return {
    /** The database of its fleets. */
    fleets: join(stateDir, "fleets", name, "fleets.db"),
    /** Of fleets in a database: which of their attempts have begun to change files here. */
    begun: join(stateDir, "fleets", name, "begun"),
    transcripts: join(stateDir, "transcripts", name),
    runs: join(stateDir, "runs", name),
    inbox: join(stateDir, "inbox", name),
    /** Of its sessions. */
    snapshots: join(stateDir, "snapshots", name),
    /** Mirrors of its repositories. */
    git: join(stateDir, "git", name),
    trail: {
      dir: trailDir,
      /** The records, one a line. */
      trail: join(trailDir, "trail.ndjson"),
      /** The sealed end of the trail when it was last written. */
      head: join(trailDir, "head"),
      lock: join(trailDir, "lock"),
      /** Names the project, for people. */
      project: join(trailDir, "project"),
      /** The project's directory itself. */
      of: projectDir,
    },
  };
}
