import { randomBytes } from "node:crypto";
import { appendFileSync, mkdirSync, renameSync, rmSync, writeFileSync } from "node:fs";
import { readdir, readFile, rm } from "node:fs/promises";
import { join } from "node:path";
import { formatOwner, isDead, type Owner, parseOwner } from "../../state/owner.ts";
import { endLeftProcesses, isContainerId } from "../kernel/left-processes.ts";
import type { Unremoved } from "./unremoved.ts";

/** How many containers are kept at least, the latest. Only those whose start has not ended matter. */
const KEPT = 4096;
/** More processes than any machine runs; the rest is not read. */
const MAX_FILES = 10_000;

/**
 * Which containers this process starts, on the disk: an Engine that ends meanwhile leaves processes of a container that it no longer knows
 * (docs/architecture.md, fact: volume-without-labels), and if this process ends too, nothing else names them. A file with the owner in its
 * first line, then an id a line.
 */
export class StartedContainers {
  readonly #dir: string;
  readonly #owner: Owner;
  #file: string | null = null;
  #latest: string[] = [];

  constructor(dir: string, owner: Owner) {
    this.#dir = dir;
    this.#owner = owner;
  }

  /** Before the container starts. Throws if the disk refuses it. */
  add(container: string): void {
    this.#latest.push(container);
    if (this.#file !== null && this.#latest.length < 2 * KEPT) {
      appendFileSync(this.#file, `${container}\n`);
      return;
    }
    this.#latest = this.#latest.slice(-KEPT);
    mkdirSync(this.#dir, { recursive: true, mode: 0o700 });
    const file = this.#file ?? join(this.#dir, randomBytes(8).toString("hex"));
    writeFileSync(`${file}.new`, `${[formatOwner(this.#owner), ...this.#latest].join("\n")}\n`, { mode: 0o600 });
    renameSync(`${file}.new`, file);
    this.#file = file;
  }

  /** When nothing of them is left. */
  remove(): void {
    if (this.#file !== null) rmSync(this.#file, { force: true });
    this.#file = null;
    this.#latest = [];
  }
}

/** Ends what Engines left of containers that owners started which are certainly dead. A line that was cut names none. */
export async function endLeftOfDead(dir: string, self: Owner, unremoved: Pick<Unremoved, "removed">): Promise<void> {
  const names = await readdir(dir).catch(() => []);
  for (const file of names.slice(0, MAX_FILES).map((name) => join(dir, name))) {
    const [first = "", ...lines] = (await readFile(file, "utf8").catch(() => "")).split("\n");
    const owner = parseOwner(first);
    if (owner === null || !isDead(owner, self)) continue;
    const started = lines.filter(isContainerId);
    const removal = (): Promise<void> => endLeftProcesses(started);
    const sinceMs = performance.now();
    await removal();
    unremoved.removed(file, { removal, sinceMs });
    await rm(file, { force: true });
  }
}
