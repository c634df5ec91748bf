import { randomUUID } from "node:crypto";
import { renameSync } from "node:fs";
import { mkdir, readdir, readFile, rename, rm, stat, unlink, utimes, writeFile } from "node:fs/promises";
import { join } from "node:path";
import { z } from "zod";
import { parseJson } from "../../../json/parse-json.ts";
import { codeOf, hasCode, isHostTrouble, nullFor } from "../../../platform/errno.ts";
import { writeAtomically } from "../../../platform/write-file.ts";
import { holdFile } from "../../../state/file-lock.ts";
import { formatOwner, isDead, lockOwner, type Owner, parseOwner } from "../../../state/owner.ts";
import { EngineTrouble } from "../../port/driver.ts";
import type { LetGo, LetGoRequest } from "../../port/engine.ts";
import type { EngineGround } from "../../port/images.ts";
import type { ImageRoots, ImageUse } from "../model/layout.ts";
import { Layers, layerName } from "./layers.ts";
import { UnfitLayer } from "./unpack-layer.ts";

export interface UnpackedImagesOptions {
  /** Directories of the state: where it is noted what images consist of and which process uses them, and where the layers are. */
  readonly dir: string;
  readonly layersDir: string;
  readonly ground: Pick<EngineGround, "savedImage">;
  readonly owner: Owner;
}

/** The Engine can start cells of this image, and runc cannot. */
export class ImageNotForRunc extends EngineTrouble {
  constructor(reason: string) {
    super(`the image cannot be used by runc: ${reason}`);
  }
}

/** Processes hold it to read and write small files, or to remove layers. */
const PATIENCE = { waitMs: 60_000, longestPauseMs: 20 };
/** An image of some gigabytes takes minutes to unpack. */
const UNPACK_PATIENCE = { waitMs: 30 * 60_000, longestPauseMs: 200 };
/** Their names are given to the kernel on one page. An Engine has at most 127. */
const MAX_LAYERS = 130;
/** More users of images are not read, and no image is let go then. */
const MAX_USERS = 10_000;
/** The id of an image, and a mark that no other process uses. */
const USER_FILE = /^([0-9a-f]{64})\.[0-9a-f-]{36}(\.idle)?$/;
/** At the end of its name while the process has no cell of the image. */
const IDLE = ".idle";
/** It takes longer to unpack a larger one than the Engine needs for some cells, */
const LARGE_BYTES = 400e6;
/** and it is worth it when there are more than these. */
const CELLS_MEANWHILE = 8;
/** How often an image may be let go just before a cell needs it. */
const MAX_ATTEMPTS = 3;

/** The file of an image: the digests of its layers, the lowest first, or what of it cannot be unpacked. */
const Noted = z.union([z.object({ layers: z.array(z.string()).min(1) }), z.object({ unfit: z.string() })]);
const NOTE = /^([0-9a-f]{64})\.json$/;

/** An image of this process. */
interface Known {
  /** Says that this process uses it; with `.idle` behind its name if no cell does. */
  readonly file: string;
  readonly layers: readonly string[];
  cells: number;
}

/**
 * The images that cells of this state directory run on. Each is unpacked when it is first used, and stays when that process has ended: the
 * Engine is not asked again, and may have removed it. `letGo` removes images of which there is no cell. A
 * process renames its file when its first cell of an image begins and when its last one ends, so that removing the image
 * and starting a cell cannot both succeed.
 */
export class UnpackedImages implements ImageRoots {
  readonly #options: UnpackedImagesOptions;
  readonly #layers: Layers;
  /** Of each image, from its first use in this process. */
  readonly #known = new Map<string, Promise<Known | null>>();
  /** How many cells of an image were asked for that was not at hand. */
  readonly #asked = new Map<string, number>();
  /** What `#known` has come to. */
  readonly #settled = new Set<string>();
  readonly #closing = new AbortController();

  constructor(options: UnpackedImagesOptions) {
    this.#options = options;
    this.#layers = new Layers(options.layersDir, options.owner);
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
      return useOf(known, this.#options.layersDir);
    }
    throw new EngineTrouble("the image is being removed");
  }

  /**
   * Whether a cell of it need not wait: it is unpacked, or that takes little time, or it was tried and `objection` tells what came of it.
   * When many cells of a large image were asked for, it is unpacked beside them.
   */
  async isAtHand(imageId: string): Promise<boolean> {
    if (this.#settled.has(imageId)) return true;
    if (this.#known.has(imageId)) return false;
    if ((await this.#complete(imageId)) !== null) return true;
    const image = await this.#options.ground.savedImage(imageId);
    if (image === null || image.bytes < LARGE_BYTES) return true;
    const asked = (this.#asked.get(imageId) ?? 0) + 1;
    this.#asked.set(imageId, asked);
    if (asked > CELLS_MEANWHILE) void this.#knownOf(imageId).catch(() => {});
    return false;
  }

  /** Ends what is unpacked now. */
  close(): void {
    this.#closing.abort();
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

  /** How many images there are, and the bytes of all layers. */
  async measure(): Promise<{ readonly count: number; readonly bytes: number }> {
    return { count: (await this.#noted()).length, bytes: await this.#layers.bytes() };
  }

  /** Removes the images that no process used since, and of which no living one has a cell; or the one with this id. They stay at the Engine. */
  async letGo({ imageId, usedBefore = Number.POSITIVE_INFINITY, dryRun = false }: LetGoRequest): Promise<LetGo> {
    const noted = await this.#noted();
    const old = noted.filter(({ id, usedAt }) => (imageId === undefined ? usedAt < usedBefore : id === imageId));
    // Layers of an image that could not be unpacked belong to none.
    if (old.length === 0 && imageId !== undefined) return { letGo: [], inUse: [], bytes: 0 };
    await using _ = await this.#lock();
    const used = await this.#usedImages(dryRun ? [] : old.map(({ id }) => id));
    const isUsed = ({ id }: { readonly id: string }): boolean => used?.has(hexOf(id)) ?? true;
    const gone = old.filter((each) => !isUsed(each));
    if (!dryRun) for (const { id } of gone) await rm(this.#noteOf(id), { force: true });
    // Another process may have noted one meanwhile.
    const left = (await this.#noted()).filter(({ id }) => !gone.some((each) => each.id === id));
    const bytes = await this.#layers.removeOthers(new Set(left.flatMap(({ layers }) => layers)), { dryRun });
    return { letGo: gone.map(({ id }) => id), inUse: old.filter(isUsed).map(({ id }) => id), bytes };
  }

  /** Removes what dead processes said they use, and what they left half unpacked. */
  async reap(): Promise<void> {
    await this.#layers.reap();
    const names = await this.#userFiles();
    if (names.length === 0) return;
    await using _ = await this.#lock();
    await this.#usedImages([]);
  }

  async #knownOf(imageId: string): Promise<Known | null> {
    const asked = this.#known.get(imageId) ?? this.#firstUse(imageId);
    this.#known.set(imageId, asked);
    const known = await asked
      .catch((error: unknown) => {
        this.#known.delete(imageId);
        throw error;
      })
      .finally(() => this.#settled.add(imageId));
    if (known === null) this.#known.delete(imageId);
    return known;
  }

  /** Said first: no process removes an image that another one says it uses. Null if the Engine does not have it. */
  async #firstUse(imageId: string): Promise<Known | null> {
    const file = join(this.#options.dir, `${hexOf(imageId)}.${randomUUID()}`);
    const mine = formatOwner(this.#options.owner);
    await (async () => {
      await using _ = await this.#lock();
      await writeFile(file, mine, { mode: 0o600, flag: "wx" });
    })();
    try {
      const noted = await this.#unpacked(imageId);
      if (noted === null) return null;
      if ("unfit" in noted) throw new ImageNotForRunc(noted.unfit);
      // What was not used for long goes first.
      await utimes(this.#noteOf(imageId), new Date(), new Date());
      const layers = noted.layers.map(layerName).toReversed();
      if (layers.length > MAX_LAYERS)
        throw new ImageNotForRunc(`its ${layers.length} layers are too many for one mount`);
      await rename(file, `${file}${IDLE}`);
      return { file, layers, cells: 0 };
    } finally {
      await rm(file, { force: true });
    }
  }

  /** What is noted of an image that needs no unpacking, or cannot be unpacked; else null. */
  async #complete(imageId: string): Promise<z.infer<typeof Noted> | null> {
    const noted = await this.#noteIn(this.#noteOf(imageId));
    return noted !== null && ("unfit" in noted || this.#layers.missing(noted.layers).length === 0) ? noted : null;
  }

  /** Null if the Engine does not have the image. */
  async #unpacked(imageId: string): Promise<z.infer<typeof Noted> | null> {
    const before = await this.#complete(imageId);
    if (before !== null) return before;
    await using _ = await this.#lock("unpack.lock", UNPACK_PATIENCE);
    const meanwhile = await this.#complete(imageId);
    if (meanwhile !== null) return meanwhile;
    const image = await this.#options.ground.savedImage(imageId);
    if (image === null) return null;
    if (image.layers.length === 0) return { unfit: "it has no files" };
    const noted = { layers: [...image.layers] };
    // Before its layers are here: none of them is removed as that of no image.
    await writeAtomically(this.#noteOf(imageId), JSON.stringify(noted));
    try {
      if (await this.#layers.unpack(imageId, image, this.#closing.signal)) {
        // A layer that was there may have been removed with another image, before this one was noted.
        await using _ = await this.#lock();
        if (this.#layers.missing(noted.layers).length === 0) return noted;
        throw new EngineTrouble("a layer of the image was removed meanwhile; try again");
      }
      await rm(this.#noteOf(imageId), { force: true });
      return null;
    } catch (error) {
      const unfit = error instanceof UnfitLayer ? { unfit: error.message } : null;
      if (error instanceof UnfitLayer && error.isOfImage)
        await writeAtomically(this.#noteOf(imageId), JSON.stringify(unfit));
      else await rm(this.#noteOf(imageId), { force: true });
      if (unfit !== null) return unfit;
      if (error instanceof EngineTrouble || isHostTrouble(error)) throw error;
      // Without the paths of this host, which the message of such an error has.
      throw new EngineTrouble(`an image could not be unpacked: ${codeOf(error) ?? (error as Error).message}`, {
        cause: error,
      });
    }
  }

  #noteOf(imageId: string): string {
    return join(this.#options.dir, `${hexOf(imageId)}.json`);
  }

  async #noteIn(file: string): Promise<z.infer<typeof Noted> | null> {
    const text = await readFile(file, "utf8").catch(nullFor("ENOENT"));
    const parsed = parseJson(text ?? "");
    return parsed.ok ? (Noted.safeParse(parsed.value).data ?? null) : null;
  }

  /** All images that were unpacked, or cannot be. */
  async #noted(): Promise<{ readonly id: string; readonly usedAt: number; readonly layers: readonly string[] }[]> {
    const { dir } = this.#options;
    const names = (await readdir(dir).catch(nullFor("ENOENT"))) ?? [];
    const found = names.slice(0, MAX_USERS).map(async (name) => {
      const [, hex] = NOTE.exec(name) ?? [];
      const stats = hex === undefined ? null : await stat(join(dir, name)).catch(nullFor("ENOENT"));
      if (stats === null) return [];
      const noted = await this.#noteIn(join(dir, name));
      return [
        { id: `sha256:${hex}`, usedAt: stats.mtimeMs, layers: noted !== null && "layers" in noted ? noted.layers : [] },
      ];
    });
    return (await Promise.all(found)).flat();
  }

  async #lock(name = "lock", patience = PATIENCE): Promise<AsyncDisposable> {
    const { dir } = this.#options;
    await mkdir(dir, { recursive: true, mode: 0o700 });
    return await holdFile(join(dir, name), lockOwner(), patience);
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

function useOf(known: Known, dir: string): ImageUse {
  let isOver = false;
  return {
    dir,
    layers: known.layers,
    mark: known.file,
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
