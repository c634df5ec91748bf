import { copyFileSync, type Dirent, existsSync, linkSync, mkdirSync, readdirSync, symlinkSync } from "node:fs";
import { chown, cp, mkdir, readdir, symlink } from "node:fs/promises";
import { dirname, join } from "node:path";
import { inject } from "vitest";
import { runcPaths } from "../../src/isolation/runc/model/layout.ts";
import { makeStateDir, statePaths } from "../../src/state/state-dir.ts";

/*
 * Hundreds of tests begin here with some forty files. Calls that wait take a fifth of the processor time of promises, and what they hold up is a test.
 */

/**
 * Makes a state directory that has the gate already, and what was seen in Corral's images, and what came of a first cell of runc if the tests
 * are on it. A test that begins with none takes the gate out of its image, looks at the image of its cells, and makes a first cell.
 */
export async function giveGate(stateDir: string): Promise<void> {
  const taken = inject("stateWithGate");
  await makeStateDir(stateDir);
  await giveCompiled(stateDir);
  if (taken === undefined) return;
  linkTree(statePaths(taken).gate, statePaths(stateDir).gate);
  const ofProbe = (dir: string): string => join(statePaths(dir).runc, "probe.json");
  const ofCrun = (dir: string): string => join(statePaths(dir).runc, "probe-crun.json");
  const ofImages = (dir: string): string => statePaths(dir).examinedImages;
  for (const remembered of [ofProbe, ofCrun, ofImages]) {
    const [theirs, ours] = [remembered(taken), remembered(stateDir)];
    if (!existsSync(theirs) || existsSync(ours)) continue;
    mkdirSync(dirname(ours), { recursive: true, mode: 0o700 });
    copyFileSync(theirs, ours);
  }
  giveImages(stateDir);
}

/** The same for another user, of what that user's own could be: copies. Cells of runc are root's. */
export async function giveGateTo(stateDir: string, uid: number): Promise<void> {
  const taken = inject("stateWithGate");
  await makeStateDir(stateDir);
  if (taken !== undefined)
    for (const kept of ["gate", "examinedImages"] as const)
      await cp(statePaths(taken)[kept], statePaths(stateDir)[kept], { recursive: true });
  for (const path of ["", ...(await readdir(stateDir, { recursive: true }))])
    await chown(join(stateDir, path), uid, uid);
}

/** What was unpacked of images. Whatever a test does to its own layers, it removes no more than a link. */
export function giveImages(stateDir: string): void {
  const taken = inject("stateWithGate");
  if (taken !== undefined) linkImages(taken, stateDir);
}

export function linkImages(from: string, to: string): void {
  const [theirs, ours] = [runcPaths(from), runcPaths(to)];
  for (const kind of ["images", "layers"] as const) {
    if (!existsSync(theirs[kind]) || existsSync(ours[kind])) continue;
    mkdirSync(ours[kind], { recursive: true, mode: 0o700 });
    for (const { name } of readdirSync(theirs[kind], { withFileTypes: true }).filter((entry) => isGiven(entry)))
      if (name.endsWith(".json")) copyFileSync(join(theirs[kind], name), join(ours[kind], name));
      else symlinkSync(join(theirs[kind], name), join(ours[kind], name));
  }
}

/** An image's file, or a layer that is complete. */
const isGiven = (entry: Dirent): boolean =>
  entry.name.endsWith(".json") || (/^[\w-]{22}$/.test(entry.name) && !entry.isFile());

/** What the built program has compiled for a command is there for its next start, in any state directory of the tests. */
export async function giveCompiled(stateDir: string): Promise<void> {
  const { NODE_COMPILE_CACHE } = process.env;
  const { compiled } = statePaths(stateDir);
  if (NODE_COMPILE_CACHE === undefined || existsSync(compiled)) return;
  const all = join(NODE_COMPILE_CACHE, "corral");
  await mkdir(all, { recursive: true, mode: 0o700 });
  await symlink(all, compiled);
}

/** Links, since a copy has megabytes to write, and to remove again. Corral replaces these files, and never writes into one. */
function linkTree(from: string, to: string): void {
  mkdirSync(to, { recursive: true, mode: 0o755 });
  for (const entry of readdirSync(from, { withFileTypes: true })) {
    const [source, target] = [join(from, entry.name), join(to, entry.name)];
    if (entry.isDirectory()) linkTree(source, target);
    else if (!existsSync(target)) linkSync(source, target);
  }
}
