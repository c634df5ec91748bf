import { readdir, readFile } from "node:fs/promises";
import { extname, join } from "node:path";
import { promisify } from "node:util";
import { gzip } from "node:zlib";
import { PACKAGE_ROOT } from "../../declarations/place/package-root.ts";
import { nullFor } from "../../platform/errno.ts";

/** A file of the page, as it is sent. The same for everybody: it says nothing of the projects. */
export interface PageFile {
  readonly contentType: string;
  readonly cacheControl: string;
  readonly bytes: Buffer;
  readonly gzipped: Buffer;
}

/** By the path of a URL. */
export type PageFiles = ReadonlyMap<string, PageFile>;

const TYPES: Readonly<Record<string, string>> = {
  ".html": "text/html; charset=utf-8",
  ".js": "text/javascript; charset=utf-8",
  ".css": "text/css; charset=utf-8",
  ".svg": "image/svg+xml",
};
/** The name of an asset changes with its content. */
const FOREVER = "public, max-age=31536000, immutable";

/**
 * Reads the page that the build has made. What is asked for later is looked up among these files, so no path of a request is
 * ever one of the disk. Without a build there is no page, and the service has only its API.
 */
export async function loadPageFiles(): Promise<PageFiles> {
  const dir = join(PACKAGE_ROOT, "dist/web");
  const assets = (await readdir(join(dir, "assets")).catch(nullFor("ENOENT"))) ?? [];
  const named = [["/", "index.html"], ...assets.map((name) => [`/assets/${name}`, `assets/${name}`])] as const;
  const files = new Map<string, PageFile>();
  for (const [url = "", path = ""] of named) {
    const contentType = TYPES[extname(path)];
    const bytes = contentType === undefined ? null : await readFile(join(dir, path)).catch(nullFor("ENOENT"));
    if (contentType === undefined || bytes === null) continue;
    const cacheControl = url === "/" ? "no-cache" : FOREVER;
    files.set(url, { contentType, cacheControl, bytes, gzipped: await promisify(gzip)(bytes, { level: 9 }) });
  }
  return files;
}
