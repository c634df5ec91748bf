import { randomUUID } from "node:crypto";
import { mkdir, readdir, readFile } from "node:fs/promises";
import { join, relative, sep } from "node:path";
import type { Readable } from "node:stream";
import type Docker from "dockerode";
import { pack } from "tar-stream";
import { z } from "zod";
import { hasCode, nullFor } from "../../../platform/errno.ts";
import { sha256 } from "../../../platform/sha256.ts";
import { writeAtomically, writeIfMissing } from "../../../platform/write-file.ts";
import { currentOwner, formatOwner, loadSealKey, sealOf } from "../../../state/owner.ts";
import { makeClosedDir, statePaths } from "../../../state/state-dir.ts";
import type { ImageFacts } from "../../plan/plan-for.ts";
import { BASE_NAME, type ContextFile, IMAGE_PREFIX, ImageBuildError } from "../../port/images.ts";
import { asked, isGone, untilGone } from "../answers/asked.ts";

/** An image may have no configuration, and any field of it may be null. */
const Image = z.looseObject({
  Id: z.string().regex(/^sha256:[0-9a-f]{64}$/),
  Config: z
    .looseObject({
      Env: z.array(z.string()).nullish(),
      Volumes: z.record(z.string(), z.unknown()).nullish(),
    })
    .nullish(),
});

/** What the Engine knows of an image, by its id or tag; null if it has none. */
export async function inspectImage(docker: Docker, reference: string): Promise<Docker.ImageInspectInfo | null> {
  try {
    const image = await asked(() => docker.getImage(reference).inspect(), Image);
    return image as unknown as Docker.ImageInspectInfo;
  } catch (error) {
    if (isGone(error)) return null;
    throw error;
  }
}

/** The image that a name refers to now. Plans hold its id, so that the image that was checked is the one that runs. */
export async function imageFacts(docker: Docker, name: string): Promise<ImageFacts | null> {
  const image = await inspectImage(docker, name);
  if (image === null) return null;
  const { Id, Config } = image;
  return { name, id: Id, env: Config?.Env ?? [], volumes: Object.keys(Config?.Volumes ?? {}).sort() };
}

/** An image that Corral can build: a folder of `imagesDir` with a Dockerfile. */
export interface CatalogImage {
  /** The folder's name, e.g. `documents`. */
  readonly name: string;
  /** e.g. `corral/documents`. */
  readonly tag: string;
  readonly context: BuildContext;
}

/** Where Corral's images are described, and which Engine has them. */
export interface ImagesRequest {
  readonly docker: Docker;
  readonly imagesDir: string;
  readonly stateDir: string;
  /** In place of `corral`, before the slash of every tag. */
  readonly prefix?: string;
}

/**
 * The images in `imagesDir`, `base` first, because the others are built on it.
 *
 * `names` chooses some of them; `base` is always included. Throws an `Error` for an unknown name.
 */
export async function catalogImages(
  imagesDir: string,
  prefix: string,
  names?: readonly string[],
): Promise<CatalogImage[]> {
  const entries = await readdir(imagesDir, { withFileTypes: true });
  const known = entries
    .filter((entry) => entry.isDirectory() && /^[a-z0-9][a-z0-9._-]{0,63}$/.test(entry.name))
    .map((entry) => entry.name);
  const wanted = names?.map((name) => (name.startsWith(`${prefix}/`) ? name.slice(prefix.length + 1) : name)) ?? known;
  const unknown = wanted.filter((name) => !known.includes(name));
  if (!known.includes(BASE_NAME))
    throw new Error(`${imagesDir} has no folder ${BASE_NAME}, on which the other images are built`);
  if (unknown.length > 0)
    throw new Error(`no such image: ${unknown.join(", ")}. There are: ${known.toSorted().join(", ")}`);
  const others = [...new Set(wanted)].filter((name) => name !== BASE_NAME).toSorted();
  return Promise.all(
    [BASE_NAME, ...others].map(async (name) => ({
      name,
      tag: `${prefix}/${name}`,
      context: await readContext(join(imagesDir, name)),
    })),
  );
}

/** What an image was made of. */
export const FINGERPRINT_LABEL = "dev.corral.image";
/** The id of the image that it is built on. */
export const BASE_LABEL = "dev.corral.base";

/** Changes if a file of the image's folder changes, or the image that it is built on. */
export function fingerprint(source: CatalogImage, baseId: string): string {
  return sha256(`${source.context.sha256}\n${baseId}\n`);
}

/** Was `image` built from these files, on this base? */
export function isCurrent(image: Docker.ImageInspectInfo, source: CatalogImage, baseId: string): boolean {
  return image.Config.Labels?.[FINGERPRINT_LABEL] === fingerprint(source, baseId);
}

/** The files that a build sees, packed so that the same files always make the same bytes. */
interface BuildContext {
  readonly files: readonly ContextFile[];
  readonly sha256: string;
}

const MAX_FILES = 200;
const MAX_BYTES = 16 * 1024 * 1024;

/** Reads a folder, its files in the order of their names. */
export async function readContext(dir: string): Promise<BuildContext> {
  const entries = await readdir(dir, { recursive: true, withFileTypes: true });
  const paths = entries
    .filter((entry) => entry.isFile())
    .map((entry) => relative(dir, join(entry.parentPath, entry.name)));
  if (!paths.includes("Dockerfile")) throw new Error(`${dir} has no Dockerfile`);
  if (paths.length > MAX_FILES) throw new Error(`${dir} has more than ${MAX_FILES} files`);
  const files: ContextFile[] = [];
  let bytes = 0;
  for (const path of paths.toSorted()) {
    const content = await readFile(join(dir, path));
    bytes += content.length;
    if (bytes > MAX_BYTES) throw new Error(`${dir} has more than ${MAX_BYTES} bytes`);
    files.push({ name: path.split(sep).join("/"), content });
  }
  return { files, sha256: sha256(await packedFiles(files)) };
}

/** A tar archive. Owners, times and modes are fixed, because a checkout or an npm package may change them; a Dockerfile sets the modes that it needs. */
export async function packedFiles(files: readonly ContextFile[]): Promise<Buffer> {
  const archive = pack();
  for (const { name, content, executable } of files)
    archive.entry({ name, mode: executable ? 0o755 : 0o644, uid: 0, gid: 0, mtime: new Date(0) }, content);
  archive.finalize();
  return Buffer.concat(await Array.fromAsync(archive as AsyncIterable<Buffer>));
}

/** The file's content as JSON; `undefined` if it is missing or not JSON, since everything recorded here can be found out again. */
export async function readRecord(file: string): Promise<unknown> {
  try {
    return JSON.parse(await readFile(file, "utf8"));
  } catch (error) {
    if (error instanceof SyntaxError || hasCode(error, "ENOENT")) return undefined;
    throw error;
  }
}

const GATE_PATH = "/usr/lib/corral/gate";
const MAX_GATE_BYTES = 16 * 1024 * 1024;
type GateRequest = Omit<ImagesRequest, "imagesDir">;
const GateRecord = z.object({ baseId: z.string(), sha256: z.string().regex(/^[0-9a-f]{64}$/) });

/**
 * The host path of the static busybox that starts every worker, extracted from corral/base.
 *
 * Extracted once for each base image, and again if the file was changed.
 */
export async function gateBinary(request: GateRequest): Promise<string> {
  const { docker, stateDir } = request;
  const { tag, baseId } = await baseOf(request);
  const known = await gateOf(baseId, stateDir);
  if (known !== null) return known;
  const gateDir = statePaths(stateDir).gate;
  const binary = await readFromImage(docker, baseId, stateDir);
  if (!binary.subarray(0, 4).equals(ELF_MAGIC))
    throw new ImageBuildError(tag, `${GATE_PATH} in it is not an executable`);
  const digest = sha256(binary);
  await makeClosedDir(stateDir);
  await mkdir(join(gateDir, digest), { recursive: true, mode: 0o755 });
  const file = join(gateDir, digest, "busybox");
  // Replaced only if its content does not match its name: other orchestrators may be starting cells with this file.
  if (!(await writeIfMissing(file, binary, { mode: 0o555 })) && (await sha256OfFile(file)) !== digest)
    await writeAtomically(file, binary, { mode: 0o555 });
  await writeAtomically(recordIn(gateDir), JSON.stringify({ baseId, sha256: digest }));
  return file;
}

/** The gate of the current base image, if it was extracted before and not changed since; else null. */
export async function knownGate(request: GateRequest): Promise<string | null> {
  return await gateOf((await baseOf(request)).baseId, request.stateDir);
}

async function baseOf({ docker, prefix = IMAGE_PREFIX }: GateRequest): Promise<{ tag: string; baseId: string }> {
  const tag = `${prefix}/${BASE_NAME}`;
  const base = await inspectImage(docker, tag);
  if (!base) throw new ImageBuildError(tag, `it is not built. Run: corral images build ${BASE_NAME}`);
  return { tag, baseId: base.Id };
}

async function gateOf(baseId: string, stateDir: string): Promise<string | null> {
  const gateDir = statePaths(stateDir).gate;
  const known = GateRecord.safeParse(await readRecord(recordIn(gateDir))).data;
  if (known?.baseId !== baseId) return null;
  const file = join(gateDir, known.sha256, "busybox");
  return (await sha256OfFile(file)) === known.sha256 ? file : null;
}

function recordIn(gateDir: string): string {
  return join(gateDir, "gate.json");
}

const ELF_MAGIC = Buffer.from("\x7fELF", "latin1");

/** Reads from a container that is created and never started. Its labels name its owner, which may die before it is removed. */
async function readFromImage(docker: Docker, imageId: string, stateDir: string): Promise<Buffer> {
  const name = `corral-gate-${randomUUID()}`;
  const container = await docker.createContainer({
    name,
    Image: imageId,
    Cmd: ["/bin/false"],
    Labels: await ownerLabels(name, stateDir),
    HostConfig: { NetworkMode: "none" },
  });
  let response: NodeJS.ReadableStream | undefined;
  try {
    // Loaded only here: it is needed once for each base image, not at every start.
    const { extract } = await import("tar-stream");
    response = await container.getArchive({ path: GATE_PATH });
    const archive = response.pipe(extract());
    for await (const entry of archive) {
      if (entry.header.type !== "file" || (entry.header.size ?? 0) > MAX_GATE_BYTES) break;
      return Buffer.concat(await Array.fromAsync(entry as AsyncIterable<Buffer>));
    }
    throw new Error(`${GATE_PATH} in the image is not a file of at most ${MAX_GATE_BYTES} bytes`);
  } finally {
    // A response that is not read to its end would keep its connection, and this process, for minutes.
    (response as Readable | undefined)?.destroy();
    await untilGone(() => container.remove({ force: true }));
  }
}

async function ownerLabels(name: string, stateDir: string): Promise<Record<string, string>> {
  const owner = formatOwner(currentOwner());
  const seal = sealOf(await loadSealKey(stateDir), { kind: "container", name, run: name, owner });
  const fields = { run: name, root: name, parent: "", worker: "", owner, plan: "", seal };
  return Object.fromEntries(Object.entries(fields).map(([field, value]) => [`dev.corral.${field}`, value]));
}

async function sha256OfFile(file: string): Promise<string | null> {
  return readFile(file).then(sha256, nullFor("ENOENT"));
}
