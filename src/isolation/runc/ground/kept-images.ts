import { randomUUID } from "node:crypto";
import { renameSync } from "node:fs";
import { mkdir, readdir, readFile, rm, unlink, writeFile } from "node:fs/promises";
import { join } from "node:path";
import { hasCode, nullFor } from "../../../platform/errno.ts";
import { holdFile } from "../../../state/file-lock.ts";
import { formatOwner, isDead, lockOwner, type Owner, parseOwner } from "../../../state/owner.ts";
import { EngineTrouble } from "../../port/driver.ts";
import type { LetGo } from "../../port/engine.ts";
import type { LayerStore } from "../../port/layer-store.ts";
import { type ImageRoots, type ImageUse, MAX_LAYERS_BYTES } from "../model/images.ts";

export interface KeptImagesOptions {
  /** A directory of the state, where each process says which images it uses. */
  readonly dir: string;
  readonly store: LayerStore;
  readonly owner: Owner;
}

/** The Engine can start cells of this image, and runc cannot. */
export class ImageNotForRunc extends EngineTrouble {
  constructor(reason: string) {
    super(`the image cannot be used by runc: ${reason}`);
  }
}

/** Processes hold it for some calls of the Engine. */
const PATIENCE = { waitMs: 60_000, longestPauseMs: 20 };
/** More users of images are not read, and no image is let go then. */
const MAX_USERS = 10_000;
/** The id of an image, and a mark that no other process uses. */
const USER_FILE = /^([0-9a-f]{64})\.[0-9a-f-]{36}(\.idle)?$/;
/** At the end of its name while the process has no cell of the image. */
const IDLE = ".idle";
/** How often an image may be let go just before a cell needs it. */
const MAX_ATTEMPTS = 3;

/** An image of this process. */
interface Known {
  /** Says that this process uses it; with `.idle` behind its name if no cell does. */
  readonly file: string;
  readonly layers: readonly string[];
  cells: number;
}

/**
 * The images that cells of this state directory run on. Each is kept from removal when a process first uses it, and stays kept
 * when that process has ended: the next one has nothing to make. `letGo` ends that for images of which there is no cell. A
 * process renames its file when its first cell of an image begins and when its last one ends, so that removing the image
 * and starting a cell cannot both succeed.
 */
export class KeptImages implements ImageRoots {
  readonly #options: KeptImagesOptions;
  /** Of each image, from its first use in this process. */
  readonly #known = new Map<string, Promise<Known | null>>();

  constructor(options: KeptImagesOptions) {
    this.#options = options;
  }

  async use(imageId: string): Promise<ImageUse | null> {
    for (let attempt = 0; attempt < MAX_ATTEMPTS; attempt += 1) {
      const known = await this.#knownOf(imageId);
      if (known === null) return null;
      if (known.cells === 0 && !renamed(`${known.file}${IDLE}`, known.file)) {
        this.#known.delete(imageId);
        continue;
      }
      known.cells += 1;
      return useOf(known);
    }
    throw new EngineTrouble("the image is being removed");
  }

  /** Why cells of this image cannot be made; null if they can. */
  async objection(imageId: string): Promise<string | null> {
    try {
      await this.#knownOf(imageId);
      return null;
    } catch (error) {
      if (error instanceof ImageNotForRunc) return error.message;
      throw error;
    }
  }

  /**
   * Lets the images go of which no living process has a cell: all, also those of state directories that are gone, or the one with
   * this id. They stay at the Engine.
   */
  async letGo({ imageId, dryRun = false }: { imageId?: string; dryRun?: boolean }): Promise<LetGo> {
    if (imageId !== undefined) return await this.#letGo(imageId, dryRun);
    const abandoned = await this.#options.store.releaseAbandoned({ dryRun });
    const { letGo, inUse } = await this.#letGo(imageId, dryRun);
    return { letGo: [...abandoned, ...letGo], inUse };
  }

  async #letGo(imageId: string | undefined, dryRun: boolean): Promise<LetGo> {
    const { store } = this.#options;
    const kept = (await store.kept()).filter((id) => imageId === undefined || id === imageId);
    if (kept.length === 0) return { letGo: [], inUse: [] };
    await using _ = await this.#lock();
    const used = await this.#usedImages(dryRun ? [] : kept);
    const isUsed = (id: string): boolean => used?.has(hexOf(id)) ?? true;
    const letGo = kept.filter((id) => !isUsed(id));
    if (!dryRun) for (const id of letGo) await store.release(id);
    return { letGo, inUse: kept.filter(isUsed) };
  }

  /** Removes what dead processes said they use. */
  async reap(): Promise<void> {
    const names = await this.#userFiles();
    if (names.length === 0) return;
    await using _ = await this.#lock();
    await this.#usedImages([]);
  }

  async #knownOf(imageId: string): Promise<Known | null> {
    const asked = this.#known.get(imageId) ?? this.#firstUse(imageId);
    this.#known.set(imageId, asked);
    const known = await asked.catch((error: unknown) => {
      this.#known.delete(imageId);
      throw error;
    });
    if (known === null) this.#known.delete(imageId);
    return known;
  }

  async #firstUse(imageId: string): Promise<Known | null> {
    const kept = await this.#keptLayers(imageId);
    if (kept === null) return null;
    const { file, layers } = kept;
    if (!layers.ok) throw new ImageNotForRunc(layers.reason);
    const { dirs } = layers;
    const bytes = Buffer.byteLength(dirs.join(":"));
    if (bytes > MAX_LAYERS_BYTES || dirs.some((dir) => /[,:\\]/.test(dir)))
      throw new ImageNotForRunc(`its ${dirs.length} layers are too many for one mount`);
    return { file, layers: dirs, cells: 0 };
  }

  /** Said first: no process lets an image go that another one says it uses. Null if the Engine does not have it. */
  async #keptLayers(imageId: string) {
    const { dir, store, owner } = this.#options;
    await using _ = await this.#lock();
    const file = join(dir, `${hexOf(imageId)}.${randomUUID()}`);
    await writeFile(`${file}${IDLE}`, formatOwner(owner), { mode: 0o600, flag: "wx" });
    const [kept, layers] = await Promise.all([store.keep(imageId), store.layers(imageId)]);
    if (kept && layers !== null) return { file, layers };
    await rm(`${file}${IDLE}`, { force: true });
    return null;
  }

  async #lock(): Promise<AsyncDisposable> {
    const { dir } = this.#options;
    await mkdir(dir, { recursive: true, mode: 0o700 });
    return await holdFile(join(dir, "lock"), lockOwner(), PATIENCE);
  }

  async #userFiles(): Promise<string[]> {
    const names = (await readdir(this.#options.dir).catch(nullFor("ENOENT"))) ?? [];
    return names.filter((name) => USER_FILE.test(name));
  }

  /**
   * The images of which a process that may be alive has a cell; null if that is not known. The caller holds the lock. A process
   * without a cell of one of `unless` has to begin again with it.
   */
  async #usedImages(unless: readonly string[]): Promise<ReadonlySet<string> | null> {
    const { dir, owner: self } = this.#options;
    const taken = unless.map(hexOf);
    const names = await this.#userFiles();
    if (names.length > MAX_USERS) return null;
    const used = new Set<string>();
    for (const name of names) {
      const [, hex = "", idle] = USER_FILE.exec(name) ?? [];
      const text = await readFile(join(dir, name), "utf8").catch(nullFor("ENOENT"));
      const owner = parseOwner(text ?? "");
      // It is written under the lock, so an incomplete one was left by a machine that stopped. One that is gone was renamed.
      if (text !== null && (owner === null || isDead(owner, self))) await rm(join(dir, name), { force: true });
      else if (text === null || idle === undefined) used.add(hex);
      else if (taken.includes(hex) && !(await removed(join(dir, name)))) used.add(hex);
    }
    return used;
  }
}

function useOf(known: Known): ImageUse {
  let isOver = false;
  return {
    layers: known.layers,
    [Symbol.dispose]() {
      if (isOver) return;
      isOver = true;
      known.cells -= 1;
      if (known.cells === 0) renamed(known.file, `${known.file}${IDLE}`);
    },
  };
}

/** At once, so that nothing of this process comes between. False if there is no such file. */
function renamed(from: string, to: string): boolean {
  try {
    renameSync(from, to);
    return true;
  } catch (error) {
    if (hasCode(error, "ENOENT")) return false;
    throw error;
  }
}

/** False if it is gone already. */
async function removed(file: string): Promise<boolean> {
  try {
    await unlink(file);
    return true;
  } catch (error) {
    if (hasCode(error, "ENOENT")) return false;
    throw error;
  }
}

function hexOf(imageId: string): string {
  const hex = /^sha256:([0-9a-f]{64})$/.exec(imageId)?.[1];
  if (hex === undefined) throw new Error("an image is named by its id in a plan");
  return hex;
}
