import { randomBytes } from "node:crypto";
import { appendFileSync, mkdirSync, renameSync, rmSync, writeFileSync } from "node:fs";
import { readdir, readFile, rm } from "node:fs/promises";
import { join } from "node:path";
import type Docker from "dockerode";
import { formatOwner, isDead, type Owner, parseOwner } from "../../state/owner.ts";
import { endLeftProcesses, isContainerId } from "../kernel/first-process.ts";
import type { CellNetwork } from "../network/listen-in.ts";
import { EngineTrouble } from "../port/driver.ts";
import { engineMessage, untilGone } from "./answers/asked.ts";
import type { AttachedStreams } from "./attachment.ts";
import type { Removal, Unremoved } from "./unremoved.ts";

/** How many containers are kept at least, the latest. Only those whose start has not ended matter. */
const KEPT = 4096;
/** More processes than any machine runs; the rest is not read. */
const MAX_FILES = 10_000;

/**
 * Which containers this process starts, on the disk: an Engine that ends meanwhile leaves processes of a container that it no longer knows
 * (docs/facts.md, fact: volume-without-labels), and if this process ends too, nothing else names them. A file with the owner in its
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

interface RemainsOptions {
  readonly docker: Docker;
  readonly unremoved: Unremoved;
}

/** What was made for one cell, and how to remove all of it in any state. */
export class CellRemains {
  container: Docker.Container | null = null;
  /** The names of its volumes. The Engine removes none that has a name with its container. */
  volumes: readonly string[] = [];
  attachment: AttachedStreams | null = null;
  network: CellNetwork | null = null;
  readonly #options: RemainsOptions;
  readonly #run: string;
  /** The Engine failed meanwhile: then it may leave volumes, also of what it says is removed or was never made. */
  isDoubtful: boolean;
  readonly #sinceMs = performance.now();
  #isGoing = false;

  constructor(options: RemainsOptions, run: string) {
    this.#options = options;
    this.#run = run;
    // An earlier cell of the same run may have left some.
    this.isDoubtful = options.unremoved.take(run);
  }

  /** Also of what it says it removed before. */
  doubt(): void {
    this.isDoubtful = true;
    this.#options.unremoved.doubt();
  }

  /** It is not known how the cell ended. That says nothing of the Engine if it was removed while it ran. */
  lost(): void {
    this.isDoubtful = true;
    if (!this.#isGoing) this.doubt();
  }

  async remove(): Promise<void> {
    this.#isGoing = true;
    this.attachment?.close();
    await this.network?.[Symbol.asyncDispose]();
    const { container } = this;
    if (container === null) return;
    let calls = 0;
    const call = async (): Promise<void> => {
      calls += 1;
      await container.remove({ force: true, v: true });
    };
    let isLeft = true;
    try {
      await untilGone(call);
      // No run fails since a volume stays, which shows a directory and holds nothing.
      isLeft = await this.#removeVolumes().then(
        () => this.isDoubtful || calls > 1,
        () => true,
      );
    } catch (error) {
      this.doubt();
      throw new EngineTrouble(`a cell could not be removed: ${engineMessage(error)}`, { cause: error });
    } finally {
      this.#remember(container, isLeft);
    }
  }

  #remember(container: Docker.Container, isLeft: boolean): void {
    const { unremoved } = this.#options;
    for (const [name, removal] of this.#removals(container)) {
      if (isLeft) unremoved.add(name, removal);
      else unremoved.removed(name, { removal, sinceMs: this.#sinceMs });
    }
  }

  /** The container's name is that of the run, whose next cell has it too; its id and the names of volumes are of this cell alone. */
  *#removals(container: Docker.Container): Iterable<[string, Removal]> {
    yield [
      this.#run,
      async (isLeft) => {
        await untilGone(async () => isLeft() && (await container.remove({ force: true, v: true })));
      },
    ];
    if (isContainerId(container.id)) yield [container.id, () => this.#endProcesses(container.id)];
    const [first] = this.volumes;
    if (first !== undefined) yield [first, () => this.#removeVolumes()];
  }

  /** Also if the run has its next cell by then. An Engine that has not ended yet could still make one. */
  async #endProcesses(id: string): Promise<void> {
    await untilGone(() => this.#options.docker.getContainer(id).remove({ force: true, v: true }));
    await endLeftProcesses([id]);
  }

  async #removeVolumes(): Promise<void> {
    const { docker } = this.#options;
    await Promise.all(this.volumes.map((name) => untilGone(() => docker.getVolume(name).remove())));
  }
}
