import { createHash, randomBytes } from "node:crypto";
import { existsSync } from "node:fs";
import { mkdir, readdir, readFile, rename, rm } from "node:fs/promises";
import { join } from "node:path";
import { PassThrough, pipeline, Readable, type Transform } from "node:stream";
import { z } from "zod";
import { removeTree } from "../../../files/host/system-program.ts";
import { parseJson } from "../../../json/parse-json.ts";
import { nullFor } from "../../../platform/errno.ts";
import { onAbort } from "../../../platform/within.ts";
import { writeAtomically } from "../../../platform/write-file.ts";
import { formatOwner, isDead, type Owner, parseOwner } from "../../../state/owner.ts";
import { EngineTrouble } from "../../port/driver.ts";
import type { SavedImage } from "../../port/images.ts";
import { DRAFT_PREFIX, launcherName, ownerOfLauncher } from "../model/layout.ts";
import { UnfitLayer, unpackLayer } from "./unpack-layer.ts";

/** Takes the layers that come with a saved image. */
export interface LayerTaker {
  /** Whether it has this one already, by its name in the archive: then it is not read. */
  has(name: string): boolean;
  /** Takes one, not compressed. */
  take(name: string, layer: AsyncIterable<Uint8Array>): Promise<void>;
}

/** An Engine that sends nothing for so long has failed, or this machine writes nothing. */
const SILENCE_MS = 600_000;
const SILENT = `the Engine sent nothing of the image for ${SILENCE_MS / 60_000} minutes`;
/** Entries of an archive, and what is read of its JSON files: two for each layer and some for the image. */
const MAX_ENTRIES = 10_000;
const MAX_JSON_BYTES = 4 * 1024 * 1024;
const MAX_ALL_JSON_BYTES = 64 * 1024 * 1024;

/**
 * Reads an image as an Engine saves it: a tar archive with a folder for each layer, or since Docker 25 an OCI layout, in which layers may be
 * compressed. Resolves with the digests of the uncompressed layers, the lowest first, as the configuration has them that this id stands for.
 *
 * @param id `sha256:…` of the configuration or, with the image store of containerd, of a manifest or an index.
 * @param expected the same digests as the Engine tells them, by which the one for this machine is chosen.
 */
export async function readSavedImage(
  archive: Readable,
  { id, expected }: { readonly id: string; readonly expected: readonly string[] },
  taker: LayerTaker,
): Promise<void> {
  const { extract } = await import("tar-stream");
  const reading = extract();
  // The loop below tells what fails.
  reading.on("error", () => {});
  archive.once("error", (error) =>
    reading.destroy(new EngineTrouble(`the Engine did not save the image: ${error.message}`)),
  );
  const ended = (): void => {
    if (!archive.readableEnded) reading.destroy(new EngineTrouble("the Engine broke off while it saved the image"));
  };
  archive.once("close", ended);
  // What was destroyed before may have closed already, and does not say so again.
  if (archive.destroyed) ended();
  const fail = (): void => void reading.destroy(new EngineTrouble(SILENT));
  const silence = setTimeout(fail, SILENCE_MS);
  archive.on("data", () => silence.refresh());
  archive.pipe(reading as unknown as NodeJS.WritableStream);
  const documents = new Map<string, unknown>();
  let entries = 0;
  let jsonBytes = 0;
  try {
    for await (const entry of reading) {
      entries += 1;
      if (entries > MAX_ENTRIES) throw new UnfitLayer("it is saved as too many files");
      const { name, type, size = 0 } = entry.header;
      const content = entry as unknown as Readable;
      content.on("error", () => {});
      if (type !== "file" || size === 0 || taker.has(name)) {
        content.resume();
        continue;
      }
      const kind = await kindOf(content, name);
      if (kind.is === "layer") await taker.take(name, kind.content);
      else if (kind.is === "document" && size <= MAX_JSON_BYTES) {
        jsonBytes += size;
        if (jsonBytes > MAX_ALL_JSON_BYTES) throw new UnfitLayer("it is saved with too much JSON");
        const text = Buffer.concat(await Array.fromAsync(kind.content));
        const parsed = parseJson(text.toString("utf8"));
        if (parsed.ok) documents.set(`sha256:${createHash("sha256").update(text).digest("hex")}`, parsed.value);
      } else for await (const _ of kind.content);
    }
  } finally {
    clearTimeout(silence);
    archive.destroy();
  }
  const found = layersOf(id, documents).some((layers) => layers.join() === expected.join());
  if (!found) throw new UnfitLayer("what the Engine saved is not the image of this id", { isOfImage: false });
}

/** A tar archive has this word in its first header, in any of its forms. */
const TAR_MAGIC = { at: 257, text: "ustar" };
const BLOCK_BYTES = 512;

/** By its first bytes: names in an OCI layout say nothing. What else there is, is read over. */
async function kindOf(
  content: Readable,
  name: string,
): Promise<{ readonly is: "layer" | "document" | "other"; readonly content: AsyncIterable<Uint8Array> }> {
  const chunks = content[Symbol.asyncIterator]();
  const read: Buffer[] = [];
  let bytes = 0;
  while (bytes < BLOCK_BYTES) {
    const { done, value } = await chunks.next();
    if (done === true) break;
    read.push(value);
    bytes += value.length;
  }
  const first = Buffer.concat(read);
  const whole = (async function* () {
    yield first;
    yield* { [Symbol.asyncIterator]: () => chunks };
  })();
  const plain = (): boolean =>
    first.subarray(TAR_MAGIC.at).toString("latin1", 0, TAR_MAGIC.text.length) === TAR_MAGIC.text;
  if (name.endsWith("/layer.tar") || plain()) return { is: "layer", content: whole };
  const zipped = await unzipping(first);
  if (zipped !== null) {
    // An error of any of them is one of the last, which the caller reads.
    const unzipped = new PassThrough();
    pipeline(Readable.from(whole), zipped, unzipped, () => {});
    return { is: "layer", content: unzipped };
  }
  return { is: first[0] === 0x7b ? "document" : "other", content: whole };
}

/** Null if it is not compressed. */
async function unzipping(first: Buffer): Promise<Transform | null> {
  const magic = first.toString("hex", 0, 4);
  if (!magic.startsWith("1f8b") && magic !== "28b52ffd") return null;
  // Loaded only here: most commands unpack nothing.
  const zlib = await import("node:zlib");
  if (magic.startsWith("1f8b")) return zlib.createGunzip();
  const { createZstdDecompress } = zlib as { createZstdDecompress?: () => Transform };
  if (createZstdDecompress === undefined)
    throw new UnfitLayer("it has layers compressed with zstd, which this Node cannot read", { isOfImage: false });
  return createZstdDecompress();
}

const Digest = z.string().regex(/^sha256:[0-9a-f]{64}$/);
const Config = z.looseObject({ rootfs: z.looseObject({ diff_ids: z.array(Digest) }) });
const Manifest = z.looseObject({ config: z.looseObject({ digest: Digest }) });
const Index = z.looseObject({ manifests: z.array(z.looseObject({ digest: Digest })).max(1000) });

/** An index of indexes is deeper than any image. */
const MAX_DEPTH = 4;

/** The layers of each image that a digest stands for: an index has one for each kind of machine. What was not saved has none. */
function layersOf(
  id: string,
  documents: ReadonlyMap<string, unknown>,
  depth = 0,
  seen = new Set<string>(),
): (readonly string[])[] {
  // Each once: an index may name another a thousand times.
  if (seen.has(id)) return [];
  seen.add(id);
  const document = documents.get(id);
  const config = Config.safeParse(document).data;
  if (config !== undefined) return [config.rootfs.diff_ids];
  if (depth === MAX_DEPTH) return [];
  const manifest = Manifest.safeParse(document).data;
  const named = manifest === undefined ? Index.safeParse(document).data?.manifests : [manifest.config];
  return (named ?? []).flatMap(({ digest }) => layersOf(digest, documents, depth + 1, seen));
}

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
  async unpack(id: string, image: SavedImage, signal: AbortSignal): Promise<boolean> {
    await mkdir(this.dir, { recursive: true, mode: 0o700 });
    const notes = await this.#notes();
    const saved = new Set(notes.map((note) => note.saved));
    const missing = new Set(this.missing(image.layers));
    const content = await image.content();
    if (content === null) return false;
    using _ = onAbort(signal, () => void content.destroy());
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
