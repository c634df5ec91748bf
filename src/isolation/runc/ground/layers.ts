import { randomBytes } from "node:crypto";
import { existsSync } from "node:fs";
import { mkdir, readdir, readFile, rename, rm } from "node:fs/promises";
import { join } from "node:path";
import { z } from "zod";
import { removeTree } from "../../../files/host/remove-tree.ts";
import { parseJson } from "../../../json/parse-json.ts";
import { nullFor } from "../../../platform/errno.ts";
import { writeAtomically } from "../../../platform/write-file.ts";
import { formatOwner, isDead, type Owner, parseOwner } from "../../../state/owner.ts";
import { EngineTrouble } from "../../port/driver.ts";
import type { SavedImage } from "../../port/ground.ts";
import { DRAFT_PREFIX, launcherName, ownerOfLauncher } from "../model/layout.ts";
import { readSavedImage } from "./saved-image.ts";
import { unpackLayer } from "./unpack-layer.ts";

/** Of a layer that is there completely. */
const Note = z.object({
  layer: z.string(),
  /** How the archive called it from which it came. */
  saved: z.string(),
  bytes: z.number(),
});
type Note = z.infer<typeof Note>;

/** More layers than any machine has; what is left over stays. */
const MAX_LAYERS = 100_000;
const NOTE = /^[\w-]{22}\.json$/;

/**
 * The layers of images, each unpacked once for this state directory and shared by all images that have it. A layer is complete when it has a note beside it. The caller sees to
 * it that only one process writes here at a time.
 */
export class Layers {
  readonly dir: string;
  readonly #owner: Owner;

  constructor(dir: string, owner: Owner) {
    this.dir = dir;
    this.#owner = owner;
  }

  /** Which of these layers are not here. */
  missing(layers: readonly string[]): string[] {
    return layers.filter((layer) => !existsSync(join(this.dir, `${layerName(layer)}.json`)));
  }

  /** Unpacks what is missing of an image. Rejects with `UnfitLayer` if that cannot be, whatever the reason is, and with `EngineTrouble`. False if there is no such image. */
  async unpack(id: string, image: SavedImage): Promise<boolean> {
    await mkdir(this.dir, { recursive: true, mode: 0o700 });
    const notes = await this.#notes();
    const saved = new Set(notes.map((note) => note.saved));
    const missing = new Set(this.missing(image.layers));
    const content = await image.content();
    if (content === null) return false;
    await readSavedImage(
      content,
      { id, expected: image.layers },
      {
        has: (name) => saved.has(name),
        take: async (name, layer) => {
          const taken = await this.#take(name, layer, missing);
          if (taken !== null) missing.delete(taken);
        },
      },
    );
    if (missing.size === 0) return true;
    throw new EngineTrouble(`the Engine saved the image without ${missing.size} of its layers`);
  }

  /** Only a layer that is missing stays: its digest is known when all of it was read. */
  async #take(saved: string, layer: AsyncIterable<Uint8Array>, missing: ReadonlySet<string>): Promise<string | null> {
    const draft = join(
      this.dir,
      `${DRAFT_PREFIX}${launcherName(formatOwner(this.#owner), randomBytes(6).toString("hex"))}`,
    );
    await mkdir(draft, { mode: 0o755 });
    try {
      const { sha256, bytes } = await unpackLayer(layer, draft);
      const digest = `sha256:${sha256}`;
      if (!missing.has(digest)) return null;
      const place = join(this.dir, layerName(digest));
      // Without a note it is what a killed process left.
      await removeTree(place);
      await rename(draft, place);
      await writeAtomically(`${place}.json`, JSON.stringify({ layer: digest, saved, bytes } satisfies Note));
      return digest;
    } finally {
      await removeTree(draft);
    }
  }

  /** Removes the layers that are not among these, and answers with how many bytes that were; `dryRun`: that is all. */
  async removeOthers(kept: ReadonlySet<string>, { dryRun = false } = {}): Promise<number> {
    const others = (await this.#notes()).filter(({ layer }) => !kept.has(layer));
    for (const { layer } of dryRun ? [] : others) {
      const place = join(this.dir, layerName(layer));
      // Without its note it is not used any more.
      await rm(`${place}.json`, { force: true });
      await removeTree(place);
    }
    return others.reduce((sum, { bytes }) => sum + bytes, 0);
  }

  async bytes(): Promise<number> {
    return (await this.#notes()).reduce((sum, { bytes }) => sum + bytes, 0);
  }

  /** Removes what dead processes left half unpacked. */
  async reap(): Promise<void> {
    const names = (await readdir(this.dir).catch(nullFor("ENOENT"))) ?? [];
    for (const name of names.filter((each) => each.startsWith(DRAFT_PREFIX))) {
      const owner = parseOwner(ownerOfLauncher(name.slice(DRAFT_PREFIX.length)) ?? "");
      if (owner === null || isDead(owner, this.#owner)) await removeTree(join(this.dir, name));
    }
  }

  async #notes(): Promise<Note[]> {
    const names = (await readdir(this.dir).catch(nullFor("ENOENT"))) ?? [];
    const notes = names
      .filter((name) => NOTE.test(name))
      .slice(0, MAX_LAYERS)
      .map(async (name) => {
        const text = await readFile(join(this.dir, name), "utf8").catch(nullFor("ENOENT"));
        const parsed = parseJson(text ?? "");
        return parsed.ok ? (Note.safeParse(parsed.value).data ?? []) : [];
      });
    return (await Promise.all(notes)).flat();
  }
}

/** Short, since the kernel takes the names of all layers of an image on one page. */
export function layerName(layer: string): string {
  return Buffer.from(layer.slice("sha256:".length), "hex").subarray(0, 16).toString("base64url");
}
