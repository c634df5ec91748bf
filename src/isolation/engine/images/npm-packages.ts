import { createHash } from "node:crypto";
import { mkdir, mkdtemp, readdir, readFile, rm, stat } from "node:fs/promises";
import { join } from "node:path";
import { Readable } from "node:stream";
import { pipeline } from "node:stream/promises";
import { createGunzip } from "node:zlib";
import { extract, type Pack, pack } from "tar-stream";
import { z } from "zod";
import { type ContextFile, ImageBuildError, type OnImageProgress } from "../../port/images.ts";
import type { ImageSource } from "./catalog.ts";
import { runHostCommand, SYSTEM_PATH } from "./host-command.ts";

/**
 * In an image's folder: packages of npm that the image contains. A build knows no registry, proxy or key of this machine; its npm does.
 * A Dockerfile finds their files in `npm-packages.tar`.
 */
const MANIFEST = "npm-packages.json";
const ARCHIVE = "npm-packages.tar";
const WORK_PREFIX = "npm-packages.";

const Release = z.strictObject({
  /** With the exact version. */
  package: z.string().regex(/^[a-z0-9-]+@\d+\.\d+\.\d+$/),
  /** SHA-512 of the package's archive, as in a lock file. */
  integrity: z.string().regex(/^sha512-[A-Za-z0-9+/]+=*$/),
});
const Manifest = z.array(
  z.strictObject({
    /** By the architecture of the Engine; `any`: the same for all. */
    release: z.partialRecord(z.enum(["amd64", "arm64", "any"]), Release),
    /** Where its files go in the archive. Empty: at the top. */
    into: z.string().regex(/^([a-z_]+(\/[a-z_]+)*)?$/),
    /** Only these files of the package; absent: all. */
    only: z.array(z.string()).optional(),
  }),
);

const MAX_BYTES = 200 * 1024 * 1024;

export interface NpmPackagesRequest {
  readonly source: ImageSource;
  /** The Engine's, e.g. `amd64`. */
  readonly architecture: string;
  /** The caller holds the lock of its images. */
  readonly stateDir: string;
  readonly env: Readonly<Record<string, string | undefined>>;
  readonly onProgress: OnImageProgress;
  readonly signal?: AbortSignal | undefined;
}

/**
 * The files of the packages that the image's folder names, if it does. npm of this machine fetches them with its own settings; a package
 * with another digest is not used.
 *
 * @throws ImageBuildError
 */
export async function npmPackages(request: NpmPackagesRequest): Promise<ContextFile[]> {
  const { source, architecture, stateDir, onProgress } = request;
  const manifest = source.context.files.find(({ name }) => name === MANIFEST);
  if (manifest === undefined) return [];
  for (const name of await readdir(stateDir))
    if (name.startsWith(WORK_PREFIX)) await rm(join(stateDir, name), { recursive: true, force: true });
  const work = await mkdtemp(join(stateDir, WORK_PREFIX));
  try {
    const archive = pack();
    const packed = Array.fromAsync(archive as AsyncIterable<Buffer>);
    for (const { release, into, only } of Manifest.parse(JSON.parse(manifest.content.toString("utf8")))) {
      const { [architecture as keyof typeof release]: found = release.any } = release;
      if (found === undefined)
        throw new ImageBuildError(source.tag, `${MANIFEST} has no package for the architecture ${architecture}`);
      onProgress({ image: source.tag, text: `fetching ${found.package} with npm` });
      const dir = await mkdtemp(join(work, "package."));
      await addFiles(archive, await fetched(request, dir, found), { into, only });
    }
    archive.finalize();
    return [{ name: ARCHIVE, content: Buffer.concat(await packed) }];
  } finally {
    await rm(work, { recursive: true, force: true });
  }
}

async function fetched(
  { source, env, signal }: NpmPackagesRequest,
  dir: string,
  { package: name, integrity }: z.infer<typeof Release>,
): Promise<Buffer> {
  const failed = (why: string) => new ImageBuildError(source.tag, `the package ${name} of npm ${why}`);
  const given = Object.entries(env).filter((entry): entry is [string, string] => entry[1] !== undefined);
  const target = join(dir, "packed");
  await mkdir(target);
  // With a folder of its own as prefix, npm reads no settings of a project.
  const command = ["npm", "pack", name, "--ignore-scripts", "--silent", "--prefix", dir, "--pack-destination", target];
  const end = await runHostCommand(command, { env: { PATH: SYSTEM_PATH, ...Object.fromEntries(given) }, signal });
  signal?.throwIfAborted();
  if (!end.succeeded)
    throw failed(`cannot be fetched. Corral asks npm of this machine, with its settings.\n${end.account}`);
  const [file = ""] = await readdir(target);
  if ((await stat(join(target, file))).size > MAX_BYTES) throw failed(`has more than ${MAX_BYTES} bytes`);
  const content = await readFile(join(target, file));
  if (`sha512-${createHash("sha512").update(content).digest("base64")}` !== integrity)
    throw failed(`has not the digest of ${MANIFEST}. It was not used`);
  return content;
}

/** npm packs each file below `package/`. */
async function addFiles(
  archive: Pack,
  tgz: Buffer,
  { into, only }: { readonly into: string; readonly only: readonly string[] | undefined },
): Promise<void> {
  const files = extract();
  const reading = pipeline(Readable.from([tgz]), createGunzip(), files);
  for await (const entry of files) {
    const name = entry.header.name.replace(/^package\//, "");
    const isWanted = entry.header.type === "file" && (only?.includes(name) ?? true);
    if (isWanted && !name.split("/").includes("..")) {
      const mode = ((entry.header.mode ?? 0) & 0o111) === 0 ? 0o644 : 0o755;
      const content = Buffer.concat(await Array.fromAsync(entry as AsyncIterable<Buffer>));
      archive.entry({ name: join(into, name), mode, uid: 0, gid: 0, mtime: new Date(0) }, content);
    } else entry.resume();
  }
  await reading;
}
