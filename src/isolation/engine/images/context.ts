import { readdir, readFile } from "node:fs/promises";
import { join, relative, sep } from "node:path";
import { pack } from "tar-stream";
import { sha256 } from "../../../platform/sha256.ts";

/** The files that a build sees, packed so that the same files always make the same bytes. */
export interface BuildContext {
  readonly tar: Buffer;
  readonly sha256: string;
}

const MAX_FILES = 200;
const MAX_BYTES = 16 * 1024 * 1024;

/**
 * Packs a folder. Owners, times and modes are fixed, because a checkout or an npm package may change them;
 * a Dockerfile sets the modes that it needs.
 */
export async function readContext(dir: string): Promise<BuildContext> {
  const entries = await readdir(dir, { recursive: true, withFileTypes: true });
  const paths = entries
    .filter((entry) => entry.isFile())
    .map((entry) => relative(dir, join(entry.parentPath, entry.name)));
  if (!paths.includes("Dockerfile")) throw new Error(`${dir} holds no Dockerfile`);
  if (paths.length > MAX_FILES) throw new Error(`${dir} holds more than ${MAX_FILES} files`);
  const archive = pack();
  let bytes = 0;
  for (const path of paths.toSorted()) {
    const content = await readFile(join(dir, path));
    bytes += content.length;
    if (bytes > MAX_BYTES) throw new Error(`${dir} holds more than ${MAX_BYTES} bytes`);
    archive.entry({ name: path.split(sep).join("/"), mode: 0o644, uid: 0, gid: 0, mtime: new Date(0) }, content);
  }
  archive.finalize();
  const tar = Buffer.concat(await Array.fromAsync(archive as AsyncIterable<Buffer>));
  return { tar, sha256: sha256(tar) };
}
