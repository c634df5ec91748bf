import { spawn } from "node:child_process";
import { createHash } from "node:crypto";
import { once } from "node:events";
import { dirname } from "node:path";
import { type Readable, Transform } from "node:stream";
import { pipeline } from "node:stream/promises";
import type { Header, Pack } from "tar-stream";
import { SYSTEM_ENV } from "../../../files/host/system-program.ts";
import { DiskFull, fullPlace, hasCode } from "../../../platform/errno.ts";
import { HARMLESS_DEVICES } from "../../port/images.ts";

/** A layer that this driver does not bring to the disk. The Engine can start cells of the image. The message names no path of the host. */
export class UnfitLayer extends Error {
  /** False if this machine is the reason: then it can be tried again. */
  readonly isOfImage: boolean;

  constructor(message: string, { isOfImage = true } = {}) {
    super(message);
    this.isOfImage = isOfImage;
  }
}

export interface UnpackedLayer {
  /** SHA-256 of the layer as it was read. */
  readonly sha256: string;
  /** Of the content of its files. */
  readonly bytes: number;
}

/** Each is an entry in memory. */
const MAX_ENTRIES = 2_000_000;
const MAX_LAYER_BYTES = 256 * 1024 ** 3;
/** For errors of the program. */
const MAX_SAID_CHARS = 400;
/** As the kernel takes them. */
const MAX_PATH_CHARS = 4096;
const MAX_ATTRIBUTE_CHARS = 64 * 1024;
const OF_MACHINE = { isOfImage: false };
/** The client library writes at most six digits of a number in a header. */
const MAX_PLAIN_ID = 0o77_7777;
/** The client library takes mode 0 for an absent one, and writes the lowest twelve bits. */
const NOT_ABSENT = 0o10000;

/**
 * GNU tar writes what {@link LayerFilter} lets through: links are made after all files, so nothing is written through one, and no name leads out
 * of the directory. Its words on standard error are failures, also where it goes on.
 */
const TAR_WORDS = [
  "--extract",
  "--file=-",
  "--preserve-permissions",
  "--same-owner",
  "--numeric-owner",
  "--xattrs",
  "--xattrs-include=*",
  "--warning=no-timestamp",
];

/**
 * Unpacks a layer of an image into an empty directory, in the form that an overlay takes as a lower layer. No other process may reach that. Rejects with
 * `UnfitLayer` if the layer has something that is not brought there; what was written stays. The caller compares the digest.
 *
 * @param layer a tar archive, not compressed.
 */
export async function unpackLayer(
  layer: AsyncIterable<Uint8Array> | Iterable<Uint8Array>,
  dir: string,
): Promise<UnpackedLayer> {
  const { extract, pack } = await import("tar-stream");
  const [reading, writing] = [extract(), pack()];
  // What fails is told by the steps below, whichever stream says it as well.
  for (const stream of [reading, writing]) stream.on("error", () => {});
  const hash = createHash("sha256");
  let bytes = 0;
  const hashing = new Transform({
    transform(chunk: Buffer, _, done) {
      hash.update(chunk);
      bytes += chunk.length;
      done(bytes > MAX_LAYER_BYTES ? new UnfitLayer("it has a layer that is too large") : null, chunk);
    },
  });
  const tar = spawn("tar", TAR_WORDS, { cwd: dir, stdio: ["pipe", "ignore", "pipe"], env: SYSTEM_ENV });
  let said = "";
  tar.stderr.on("data", (chunk: Buffer) => {
    said = `${said}${chunk}`.slice(0, MAX_SAID_CHARS);
  });
  const ended = Promise.race([
    once(tar, "close"),
    once(tar, "error").then(([error]) =>
      Promise.reject(new UnfitLayer(`GNU tar cannot be started (${error.code})`, OF_MACHINE)),
    ),
  ]);
  const filter = new LayerFilter(writing);
  const filtered = (async () => {
    for await (const entry of reading) await filter.add(entry.header, entry as unknown as Readable);
    filter.end();
    writing.finalize();
  })();
  const steps = [
    pipeline(layer, hashing, reading as unknown as NodeJS.WritableStream),
    pipeline(writing as unknown as Readable, tar.stdin),
    filtered,
  ];
  // The first that fails ends the others.
  const failed = await Promise.all(steps).then(
    () => null,
    (error: Error) => {
      reading.destroy(error);
      writing.destroy(error);
      tar.kill("SIGKILL");
      return error;
    },
  );
  await Promise.allSettled(steps);
  const [code] = (await ended) as [number | null];
  // A program that ended by itself breaks its pipe: what it said is the reason. It also says something if its input broke off, which is none.
  const hasBrokenPipe = hasCode(failed, "EPIPE") || hasCode(failed, "ERR_STREAM_PREMATURE_CLOSE");
  if (failed !== null && (said === "" || !hasBrokenPipe)) throw failed;
  // The layer is a folder that is removed now.
  if (said !== "" && fullPlace([dir]) !== null) throw new DiskFull(dirname(dir));
  if (code !== 0 || said !== "")
    throw new UnfitLayer(`GNU tar could not unpack it: ${said.trim() || `exit code ${code}`}`, OF_MACHINE);
  return { sha256: hash.digest("hex"), bytes: filter.bytes };
}

/** As it is passed on. */
type Entry = Partial<Header> & Pick<Header, "name" | "type">;

/** What is before the name of a deleted file, and the name that stands for all that lower layers have in its directory. */
const DELETED = ".wh.";
const ALL_DELETED = ".wh..wh..opq";

/** Passes the entries of a layer on, changed to what an overlay understands, or throws `UnfitLayer`. */
class LayerFilter {
  readonly #to: Pack;
  readonly #headers = new Map<string, Entry | null>();
  readonly #deleted = new Set<string>();
  readonly #opaque = new Set<string>();
  bytes = 0;

  constructor(to: Pack) {
    this.#to = to;
  }

  async add(header: Header, content: Readable): Promise<void> {
    if (this.#headers.size + this.#deleted.size > MAX_ENTRIES) throw new UnfitLayer("it has a layer of too many files");
    const path = pathOf(header.name);
    const { name, above } = split(path);
    if (path !== "." && name.startsWith(DELETED)) {
      if (name === ALL_DELETED) this.#opaque.add(above);
      // Others that begin so are notes of old Engines.
      else if (!name.startsWith(".wh..wh.")) this.#deleted.add(join(above, pathOf(name.slice(DELETED.length))));
      content.resume();
      return;
    }
    const type = typeOf(header);
    this.#judgeAbove(above);
    const { size, mtime, linkname, devmajor, devminor } = header;
    const passed: Entry = { name: path, type, size, mtime, devmajor, devminor, ...metadataOf(header) };
    if (type === "symlink") passed.linkname = linkname;
    if (type === "link") {
      passed.linkname = pathOf(linkname);
      if (this.#headers.get(passed.linkname) !== null)
        throw new UnfitLayer(`it has a hard link to no file: ${shown(path)}`);
    }
    this.#headers.set(path, type === "directory" ? passed : null);
    this.bytes += type === "file" ? size : 0;
    await this.#write(passed, content);
  }

  /** Deleted files are devices 0:0, and an attribute says that nothing of lower layers is seen in a directory. */
  end(): void {
    if (this.#opaque.has(".")) throw new UnfitLayer("it has a layer that replaces all below it");
    for (const path of [...this.#deleted, ...this.#opaque]) this.#judgeAbove(split(path).above);
    for (const path of this.#deleted) {
      const seen = this.#headers.get(path);
      if (seen != null) this.#opaque.add(path);
      else if (seen === undefined)
        this.#to.entry({ ...OF_ROOT, name: path, type: "character-device", devmajor: 0, devminor: 0 });
    }
    for (const path of this.#opaque) {
      const header = this.#headers.get(path);
      if (header === null) continue;
      const pax = { ...(header?.pax as object), "SCHILY.xattr.trusted.overlay.opaque": "y" };
      this.#to.entry({ ...(header ?? { ...OF_ROOT, mode: 0o755, name: path, type: "directory" }), pax });
    }
  }

  #judgeAbove(above: string): void {
    for (let dir = above; dir !== "."; dir = split(dir).above)
      if (this.#headers.get(dir) === null)
        throw new UnfitLayer(`it has files below ${shown(dir)}, which is no directory`);
  }

  async #write(header: Entry, content: Readable): Promise<void> {
    const written = Promise.withResolvers<null>();
    const done = (error?: Error | null): void => (error == null ? written.resolve(null) : written.reject(error));
    const sink = this.#to.entry(header, done);
    content.on("error", written.reject);
    sink.on("error", written.reject);
    if (header.type === "file" && (header.size ?? 0) > 0) content.pipe(sink as unknown as NodeJS.WritableStream);
    else {
      content.resume();
      if (header.type === "file") sink.end(undefined);
    }
    await written.promise;
  }
}

const OF_ROOT = { mode: NOT_ABSENT, uid: 0, gid: 0, mtime: new Date(0), size: 0 } satisfies Partial<Header>;

function typeOf({ name, type, devmajor, devminor, pax }: Header): NonNullable<Header["type"]> {
  if (Object.keys(pax ?? {}).some((key) => key.startsWith("GNU.sparse")))
    throw new UnfitLayer(`it has a sparse file: ${shown(name)}`);
  if (type === "contiguous-file") return "file";
  if (type === "character-device" && HARMLESS_DEVICES.has(`${devmajor}:${devminor}`)) return type;
  if (type === "file" || type === "link" || type === "symlink" || type === "directory" || type === "fifo") return type;
  const kind = type === "character-device" || type === "block-device" ? "a device" : "an entry of an unknown kind";
  throw new UnfitLayer(`it has ${kind}: ${shown(name)}`);
}

/** Capabilities of files, and what users note. An attribute that means something to an overlay is never the image's. */
const ATTRIBUTE = /^SCHILY\.xattr\.(?:security\.capability|user\..+)$/s;

function metadataOf({ name, mode, uid, gid, pax }: Header): Pick<Header, "mode" | "uid" | "gid" | "pax"> {
  const all = (pax ?? {}) as Record<string, string>;
  const kept: Record<string, string> = {};
  let chars = 0;
  for (const [key, value] of Object.entries(all)) {
    if (key !== "mtime" && !ATTRIBUTE.test(key)) continue;
    if (value.includes("\ufffd")) throw new UnfitLayer(`it has an attribute that cannot be kept: ${shown(name)}`);
    kept[key] = value;
    chars += key.length + value.length;
  }
  if (chars > MAX_ATTRIBUTE_CHARS) throw new UnfitLayer(`it has attributes that are too long: ${shown(name)}`);
  const owner = { uid: numberOf(all.uid) ?? uid, gid: numberOf(all.gid) ?? gid };
  for (const [key, value] of Object.entries(owner)) if (value > MAX_PLAIN_ID) kept[key] = String(value);
  const size = Object.keys(kept).length;
  return { mode: mode | NOT_ABSENT, ...owner, ...(size === 0 ? {} : { pax: kept }) };
}

function numberOf(text: string | undefined): number | null {
  return text !== undefined && /^\d{1,10}$/.test(text) ? Number(text) : null;
}

/** A path in the layer, as `a/b`; `.` is its root. The reader puts U+FFFD in place of what is not UTF-8. */
function pathOf(name: string): string {
  if (name.length > MAX_PATH_CHARS) throw new UnfitLayer(`it has a name that is too long: ${shown(name)}`);
  if (/[\0\ufffd]/.test(name)) throw new UnfitLayer(`it has a name that is not UTF-8: ${shown(name)}`);
  const parts = name.split("/").filter((part) => part !== "" && part !== ".");
  if (parts.includes("..")) throw new UnfitLayer(`it has a name that leads upwards: ${shown(name)}`);
  return parts.length === 0 ? "." : parts.join("/");
}

function split(path: string): { readonly above: string; readonly name: string } {
  const at = path.lastIndexOf("/");
  return at < 0 ? { above: ".", name: path } : { above: path.slice(0, at), name: path.slice(at + 1) };
}

function join(above: string, name: string): string {
  return above === "." ? name : `${above}/${name}`;
}

/** The names are the image's, with any character in them. */
function shown(name: string): string {
  return JSON.stringify(name.slice(0, 100));
}
