import { randomBytes } from "node:crypto";
import { appendFileSync, mkdirSync, renameSync, rmSync, writeFileSync } from "node:fs";
import { readdir, readFile, rm } from "node:fs/promises";
import { join } from "node:path";
import type Docker from "dockerode";
import { within } from "../../platform/within.ts";
import { formatOwner, isDead, type Owner, parseOwner } from "../../state/owner.ts";
import { endLeftProcesses, isContainerId } from "../kernel/first-process.ts";
import type { CellNetwork } from "../network/listen-in.ts";
import { EngineTrouble } from "../port/driver.ts";
import { engineMessage, untilGone } from "./answers/asked.ts";
import type { AttachedStreams } from "./attachment.ts";

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

/** Further ones are left to the next start of Corral. */
const MAX_LEFT = 10_000;
/** The first pause before what is left is tried again. Each is twice as long as the one before, up to the longest. */
const FIRST_PAUSE_MS = 2000;
const LONGEST_PAUSE_MS = 60_000;
/** The Engine is away, if so many fail one after another. */
const MAX_FAILURES = 3;
/** The end of a project does not wait longer. */
const AT_END_MS = 5000;
/** An Engine that ends still answers to calls that it has begun; so long at most before others fail. */
const DOUBT_MS = 60_000;
const MAX_REMOVED = 1000;

/** Rejects if it has to be tried again. It removes nothing more from the moment on in which `isLeft` is false. */
export type Removal = (isLeft: () => boolean) => Promise<void>;

/**
 * What this process could not remove, since the Engine was away or lost the answer. No other process removes it while this one lives,
 * which may be for weeks. So it is tried again, beside everything else; nothing waits for it, and no error is reported a second time.
 */
export class Unremoved {
  readonly #left = new Map<string, Removal>();
  /** What the Engine removed, as it says. The latest is the last. */
  readonly #removed = new Map<string, { readonly removal: Removal; readonly atMs: number }>();
  #doubtedAtMs = Number.NEGATIVE_INFINITY;
  #trying: Promise<void> | null = null;
  #timer: NodeJS.Timeout | null = null;
  #pauseMs = FIRST_PAUSE_MS;

  add(name: string, removal: Removal): void {
    if (this.#left.size >= MAX_LEFT && !this.#left.has(name)) return;
    this.#left.set(name, removal);
    this.#later();
  }

  /**
   * The Engine has removed it, as it says. An Engine that is ending says so and leaves volumes, and only calls after that show that it
   * ended: then the removal is made again. `sinceMs`, as of `performance.now()`: when this was begun.
   */
  removed(name: string, { removal, sinceMs }: { readonly removal: Removal; readonly sinceMs: number }): void {
    const now = performance.now();
    if (this.#doubtedAtMs >= sinceMs) {
      this.add(name, removal);
      return;
    }
    for (const [old, { atMs }] of this.#removed) {
      if (this.#removed.size < MAX_REMOVED && now - atMs <= DOUBT_MS) break;
      this.#removed.delete(old);
    }
    this.#removed.delete(name);
    this.#removed.set(name, { removal, atMs: now });
  }

  /** The Engine failed: what it removed shortly before may be left. */
  doubt(): void {
    const now = performance.now();
    this.#doubtedAtMs = now;
    for (const [name, { removal, atMs }] of this.#removed) if (now - atMs <= DOUBT_MS) this.add(name, removal);
    this.#removed.clear();
  }

  /** Takes it back: something else gets this name. True if something may be left. */
  take(name: string): boolean {
    this.#removed.delete(name);
    return this.#left.delete(name);
  }

  /** One more attempt, which takes some seconds at most. Never rejects. True if nothing is left. */
  async tryAtEnd(): Promise<boolean> {
    if (this.#left.size > 0) await within(this.#tryAll(), AT_END_MS);
    return this.#left.size === 0;
  }

  /** The process may end meanwhile. */
  #later(): void {
    this.#timer ??= setTimeout(() => {
      this.#timer = null;
      void this.#tryAll();
    }, this.#pauseMs).unref();
  }

  async #tryAll(): Promise<void> {
    this.#trying ??= this.#tryEach().finally(() => {
      this.#trying = null;
      this.#pauseMs = this.#left.size === 0 ? FIRST_PAUSE_MS : Math.min(2 * this.#pauseMs, LONGEST_PAUSE_MS);
      if (this.#left.size > 0) this.#later();
    });
    await this.#trying;
  }

  async #tryEach(): Promise<void> {
    let failures = 0;
    for (const [name, removal] of [...this.#left]) {
      const isLeft = (): boolean => this.#left.get(name) === removal;
      if (!isLeft()) continue;
      const isRemoved = await removal(isLeft).then(
        () => true,
        () => false,
      );
      if (isLeft()) {
        this.#left.delete(name);
        // Behind all others, so that one which never succeeds keeps none from being tried.
        if (!isRemoved) this.#left.set(name, removal);
      }
      failures = isRemoved ? 0 : failures + 1;
      if (failures === MAX_FAILURES) return;
    }
  }
}
