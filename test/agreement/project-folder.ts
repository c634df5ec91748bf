import { execFileSync } from "node:child_process";
import fs from "node:fs";
import { dirname, join } from "node:path";
import type { Declaration } from "./declaration.ts";
import { DIRECTORIES, type Entry, linkTarget, OUTSIDE, type Part, placeName, type Scenario } from "./sandboxes.ts";

/** The user that cells run as where nothing else is said. Everything is this user's: modes and owners are not what is compared. */
const WORKER_UID = 65532;

const LOOSE = {
  name: "loose",
  description: "for packages",
  extends: "untrusted",
  hardening: { read_only_root: { value: false, why: "a test writes there" } },
};

/** Writes a scenario's project below `base`; answers with its folder. */
export function writeProjectFolder(base: string, scenario: Scenario, { project, worker }: Declaration): string {
  const dir = join(base, "p");
  write(join(base, "outside.txt"), "outside\n");
  const { rootFiles: root } = scenario;
  const policy = root === undefined ? { policy: "untrusted" } : { policy: "loose", policies: "./policies" };
  write(join(dir, "corral.yaml"), JSON.stringify({ version: 1, ...policy, sandbox: project }));
  if (root !== undefined) write(join(dir, "policies/loose.yaml"), JSON.stringify(LOOSE));
  const definition = {
    image: "corral/python",
    command: ["true"],
    ...(root === undefined ? {} : { root }),
    sandbox: worker,
    shell_rules: { default: "pre_approved" },
  };
  write(join(dir, "workers", "probed.worker"), `---\n${JSON.stringify(definition)}\n---\n`);
  write(join(dir, "note.md"), "note\n");
  const fifos = new Set<string>();
  for (const [index, part] of scenario.parts.entries()) {
    for (const { name } of part.places)
      for (const inner of DIRECTORIES) write(join(dir, "area", placeName(name, index), inner, "a.md"), "text\n");
    for (const entry of part.entries) makeEntry(dir, base, entry, part, index, fifos);
  }
  if (fifos.size > 0) execFileSync("mkfifo", ["--", ...fifos]);
  if (process.getuid?.() === 0) giveToWorker(dir);
  return dir;
}

function makeEntry(dir: string, base: string, entry: Entry, { places }: Part, index: number, fifos: Set<string>): void {
  const place = placeName(places[entry.place % places.length]?.name ?? "", index);
  const path = join(dir, "area", place, entry.dir, entry.name);
  // Two entries may have one name; the first stays.
  if (fifos.has(path) || fs.lstatSync(path, { throwIfNoEntry: false }) !== undefined) return;
  if (entry.kind === "file") write(path, "text\n");
  else if (entry.kind === "directory") write(join(path, "a.md"), "text\n");
  else if (entry.kind === "fifo") fifos.add(path);
  else fs.symlinkSync(entry.target === OUTSIDE ? join(base, "outside.txt") : linkTarget(entry.target, index), path);
}

function write(path: string, text: string): void {
  fs.mkdirSync(dirname(path), { recursive: true });
  fs.writeFileSync(path, text);
}

function giveToWorker(path: string): void {
  fs.lchownSync(path, WORKER_UID, WORKER_UID);
  if (!fs.lstatSync(path).isDirectory()) return;
  for (const name of fs.readdirSync(path)) giveToWorker(join(path, name));
}
