/**
 * A process that shares a folder with its victim and, as fast as it can, puts links to canaries in the place of what is
 * there, and takes them away again: `node flipper.ts SHARED OUTSIDE`. It runs until it is killed.
 */
import fs from "node:fs";
import { join } from "node:path";

const [shared, outside] = process.argv.slice(2) as [string, string];

/** Each place, what the link in its place leads to, and how what was there is put back where a victim removed it. */
const flips = [
  { at: "file", to: "canary", restore: (path: string) => fs.writeFileSync(path, "theirs") },
  { at: "folder", to: ".", restore: (path: string) => makeFolder(path) },
  { at: "outer/inner", to: ".", restore: (path: string) => makeFolder(path) },
];

function makeFolder(path: string): void {
  fs.mkdirSync(path, { recursive: true });
  fs.writeFileSync(join(path, "canary"), "theirs");
}

/** The victim changes the same names, so that any step may fail: the next round begins anew. */
function attempt(step: () => void): void {
  try {
    step();
  } catch {
    // Nothing depends on a single step.
  }
}

process.stdout.write("ready\n");
for (let round = 0; ; round++) {
  for (const [index, { at, to, restore }] of flips.entries()) {
    const path = join(shared, at);
    // Names beside the shared folder, so that no victim finds what is put away.
    const [away, link] = [join(shared, "..", `away-${index}`), join(shared, "..", `link-${index}`)];
    attempt(() => fs.rmSync(away, { recursive: true, force: true }));
    attempt(() => fs.symlinkSync(join(outside, to), link));
    attempt(() => fs.renameSync(path, away));
    attempt(() => fs.renameSync(link, path));
    if (round % 3 === 0) for (let spin = 0; spin < 500; spin++) attempt(() => fs.lstatSync(path));
    attempt(() => {
      if (fs.lstatSync(path).isSymbolicLink()) fs.unlinkSync(path);
    });
    attempt(() => fs.renameSync(away, path));
    attempt(() => {
      if (!fs.existsSync(path)) restore(path);
    });
  }
}
