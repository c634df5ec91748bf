import { createHash } from "node:crypto";
import { createServer } from "node:http";
import type { AddressInfo } from "node:net";
import { gzipSync } from "node:zlib";
import { pack } from "tar-stream";

/** A registry with one image, over HTTP on loopback, which the Engine trusts without TLS. It only answers. */
export interface ImageRegistry extends AsyncDisposable {
  /** `127.0.0.1:PORT/team/tool` */
  readonly repository: string;
  readonly digest: string;
  /** `METHOD PATH` of each request. */
  readonly requests: readonly string[];
}

const TYPES = {
  manifest: "application/vnd.docker.distribution.manifest.v2+json",
  config: "application/vnd.docker.container.image.v1+json",
  layer: "application/vnd.docker.image.rootfs.diff.tar.gzip",
};

/** The image has these files; it is the one with the tag `1`. */
export async function imageRegistry(files: Readonly<Record<string, Buffer>>): Promise<ImageRegistry> {
  const archive = pack();
  for (const [name, content] of Object.entries(files)) archive.entry({ name, mode: 0o755 }, content);
  archive.finalize();
  const tar = Buffer.concat(await Array.fromAsync(archive as AsyncIterable<Buffer>));
  const layer = gzipSync(tar);
  const config = Buffer.from(
    JSON.stringify({
      architecture: process.arch === "arm64" ? "arm64" : "amd64",
      os: "linux",
      config: { Env: ["FROM=registry"] },
      rootfs: { type: "layers", diff_ids: [digestOf(tar)] },
      history: [{ created_by: "a test" }],
    }),
  );
  const part = (mediaType: string, content: Buffer) => ({ mediaType, size: content.length, digest: digestOf(content) });
  const manifest = Buffer.from(
    JSON.stringify({
      schemaVersion: 2,
      mediaType: TYPES.manifest,
      config: part(TYPES.config, config),
      layers: [part(TYPES.layer, layer)],
    }),
  );
  const blobs = new Map([config, layer, manifest].map((content) => [digestOf(content), content]));
  const requests: string[] = [];
  const server = createServer((request, response) => {
    requests.push(`${request.method} ${request.url}`);
    if (request.url === "/v2/") return void response.end("{}");
    const [, kind, name = ""] = /^\/v2\/team\/tool\/(manifests|blobs)\/(.+)$/.exec(request.url ?? "") ?? [];
    const content = kind === "manifests" && name === "1" ? manifest : blobs.get(name);
    if (content === undefined) return void response.writeHead(404).end("{}");
    const type = kind === "manifests" ? TYPES.manifest : "application/octet-stream";
    response.writeHead(200, {
      "content-type": type,
      "content-length": content.length,
      "docker-content-digest": digestOf(content),
    });
    response.end(request.method === "HEAD" ? undefined : content);
  });
  await new Promise<void>((resolve) => server.listen(0, "127.0.0.1", resolve));
  return {
    repository: `127.0.0.1:${(server.address() as AddressInfo).port}/team/tool`,
    digest: digestOf(manifest),
    requests,
    async [Symbol.asyncDispose]() {
      server.closeAllConnections();
      await new Promise((resolve) => server.close(resolve));
    },
  };
}

function digestOf(content: Buffer): string {
  return `sha256:${createHash("sha256").update(content).digest("hex")}`;
}
