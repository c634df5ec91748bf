import { appendFileSync, renameSync, writeFileSync } from "node:fs";
import { readFile } from "node:fs/promises";
import { join } from "node:path";
import { makeOwnerDir, removeOwnerDir } from "../../state/live-dir.ts";
import type { Owner } from "../../state/owner.ts";
import { isContainerId } from "../kernel/left-processes.ts";

/** In an owner's directory: the ids of the containers that it started, one a line, the latest last. */
const FILE = "containers";
/** How many of them are kept at least. Only those whose start has not ended matter. */
const KEPT = 4096;

/**
 * Which containers this process starts, on the disk: an Engine that ends meanwhile leaves processes of a container that it no longer knows
 * (docs/architecture.md, fact: volume-without-labels), and if this process ends too, nothing else names them.
 */
export class StartedContainers {
  readonly #liveDir: string;
  readonly #owner: Owner;
  #dir: Promise<string> | null = null;
  #latest: string[] = [];

  constructor(liveDir: string, owner: Owner) {
    this.#liveDir = liveDir;
    this.#owner = owner;
  }

  /** Before the container starts. Rejects if the disk refuses it. */
  async add(container: string): Promise<void> {
    this.#dir ??= makeOwnerDir(this.#liveDir, this.#owner);
    const file = join(await this.#dir, FILE);
    this.#latest.push(container);
    if (this.#latest.length < 2 * KEPT) {
      appendFileSync(file, `${container}\n`, { mode: 0o600 });
      return;
    }
    this.#latest = this.#latest.slice(-KEPT);
    writeFileSync(`${file}.new`, `${this.#latest.join("\n")}\n`, { mode: 0o600 });
    renameSync(`${file}.new`, file);
  }

  /** When nothing of them is left. */
  async remove(): Promise<void> {
    const dir = this.#dir;
    this.#dir = null;
    this.#latest = [];
    if (dir !== null) await removeOwnerDir(await dir);
  }
}

/** The containers that the owner of this directory below `live/` started. A line that was cut is none. */
export async function startedIn(ownerDir: string): Promise<string[]> {
  const text = await readFile(join(ownerDir, FILE), "utf8").catch(() => "");
  return text
    .split("\n")
    .slice(-2 * KEPT)
    .filter(isContainerId);
}
