import { lstatSync } from "node:fs";
import { mkdir, readFile } from "node:fs/promises";
import { join } from "node:path";
import { writeAtomically } from "../../platform/write-file.ts";
import { LOCAL_NAMES } from "../plan/network.ts";

/** Files on the host that replace, in a cell without a network, those that the Engine makes for its networks. */
export interface NameFiles {
  readonly hosts: string;
  readonly resolver: string;
  readonly hostname: string;
}

/** A cell without a network must not learn the host's name servers. */
const RESOLVER = "nameserver 127.0.0.1\n";
const HOSTNAME = "corral\n";

/** The files of one directory that no worker can write. Several processes may make them at once. */
export class NameFileSet {
  readonly #dir: string;
  /** Their inode, size and change time when they were written, to notice any later change. */
  #made: ReadonlyMap<string, string> = new Map();

  constructor(dir: string) {
    this.#dir = dir;
  }

  /** Makes them if they are missing or were changed, for example by a clean-up during a long-lived process. */
  async files(): Promise<NameFiles> {
    const place = (name: string): string => join(this.#dir, name);
    const files: NameFiles = { hosts: place("hosts"), resolver: place("resolv.conf"), hostname: place("hostname") };
    const all = Object.values(files);
    if (!all.every((file) => this.#made.has(file) && this.#made.get(file) === traitsOf(file))) {
      await mkdir(this.#dir, { recursive: true, mode: 0o755 });
      await writeUnlessSame(files.hosts, LOCAL_NAMES);
      await writeUnlessSame(files.resolver, RESOLVER);
      await writeUnlessSame(files.hostname, HOSTNAME);
      this.#made = new Map(all.map((file) => [file, traitsOf(file)]));
    }
    return files;
  }
}

/** Empty if it does not exist. */
function traitsOf(file: string): string {
  const stats = lstatSync(file, { bigint: true, throwIfNoEntry: false });
  return stats === undefined ? "" : [stats.dev, stats.ino, stats.size, stats.ctimeNs].join(":");
}

async function writeUnlessSame(file: string, content: string): Promise<void> {
  const there = await readFile(file, "utf8").catch(() => null);
  if (there !== content) await writeAtomically(file, content, { mode: 0o444 });
}
