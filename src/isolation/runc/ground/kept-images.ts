import { randomUUID } from "node:crypto";
import { mkdir, readdir, readFile, rm, writeFile } from "node:fs/promises";
import { join } from "node:path";
import { nullFor } from "../../../platform/errno.ts";
import { holdFile } from "../../../state/file-lock.ts";
import { formatOwner, isDead, lockOwner, type Owner, parseOwner } from "../../../state/owner.ts";
import { EngineTrouble } from "../../port/driver.ts";
import type { LetGo } from "../../port/engine.ts";
import type { LayerStore } from "../../port/layer-store.ts";
import { type ImageRoot, type ImageRoots, MAX_LAYERS_BYTES } from "../model/images.ts";

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
const USER_FILE = /^([0-9a-f]{64})\.[0-9a-f-]{36}$/;

/**
 * The images that cells of this state directory run on. Each is kept from removal when a process first uses it, and stays kept
 * when that process has ended: the next one has nothing to make. `letGo` ends that for images that no process uses.
 */
export class KeptImages implements ImageRoots {
  readonly #options: KeptImagesOptions;
  /** Of each image, from its first use in this process. */
  readonly #roots = new Map<string, Promise<ImageRoot | null>>();

  constructor(options: KeptImagesOptions) {
    this.#options = options;
  }

  async rootOf(imageId: string): Promise<ImageRoot | null> {
    const root = this.#roots.get(imageId) ?? this.#firstUse(imageId);
    this.#roots.set(imageId, root);
    try {
      const found = await root;
      if (found === null) this.#roots.delete(imageId);
      return found;
    } catch (error) {
      this.#roots.delete(imageId);
      throw error;
    }
  }

  /** Why cells of this image cannot be made; null if they can. */
  async objection(imageId: string): Promise<string | null> {
    try {
      await this.rootOf(imageId);
      return null;
    } catch (error) {
      if (error instanceof ImageNotForRunc) return error.message;
      throw error;
    }
  }

  /** Lets the images go that no living process uses: all, or the one with this id. They stay at the Engine. */
  async letGo({ imageId, dryRun = false }: { imageId?: string; dryRun?: boolean }): Promise<LetGo> {
    const { store } = this.#options;
    const kept = (await store.kept()).filter((id) => imageId === undefined || id === imageId);
    if (kept.length === 0) return { letGo: [], inUse: [] };
    await using _ = await this.#lock();
    const used = await this.#usedImages();
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
    await this.#usedImages();
  }

  async #firstUse(imageId: string): Promise<ImageRoot | null> {
    const layers = await this.#keptLayers(imageId);
    if (layers === null) return null;
    if (!layers.ok) throw new ImageNotForRunc(layers.reason);
    const { dirs } = layers;
    const bytes = Buffer.byteLength(dirs.join(":"));
    if (bytes > MAX_LAYERS_BYTES || dirs.some((dir) => /[,:\\]/.test(dir)))
      throw new EngineTrouble(
        `this image cannot be used by runc: its ${dirs.length} layers are too many for one mount`,
      );
    return { layers: dirs };
  }

  /** Said first: no process lets an image go that another one says it uses. Null if the Engine does not have it. */
  async #keptLayers(imageId: string) {
    const { dir, store, owner } = this.#options;
    await using _ = await this.#lock();
    const file = join(dir, `${hexOf(imageId)}.${randomUUID()}`);
    await writeFile(file, formatOwner(owner), { mode: 0o600, flag: "wx" });
    const [kept, layers] = await Promise.all([store.keep(imageId), store.layers(imageId)]);
    if (kept && layers !== null) return layers;
    await rm(file, { force: true });
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

  /** The images that a process uses which may be alive; null if that is not known. The caller holds the lock. */
  async #usedImages(): Promise<ReadonlySet<string> | null> {
    const { dir, owner: self } = this.#options;
    const names = await this.#userFiles();
    if (names.length > MAX_USERS) return null;
    const used = new Set<string>();
    for (const name of names) {
      const text = await readFile(join(dir, name), "utf8").catch(nullFor("ENOENT"));
      if (text === null) continue;
      const owner = parseOwner(text);
      // It is written under the lock, so an incomplete one was left by a machine that stopped.
      if (owner === null || isDead(owner, self)) await rm(join(dir, name), { force: true });
      else used.add(USER_FILE.exec(name)?.[1] ?? "");
    }
    return used;
  }
}

function hexOf(imageId: string): string {
  const hex = /^sha256:([0-9a-f]{64})$/.exec(imageId)?.[1];
  if (hex === undefined) throw new Error("an image is named by its id in a plan");
  return hex;
}
