import { execFileSync } from "node:child_process";
import { createHash } from "node:crypto";
import { mkdir, mkdtemp, readFile, rm, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { httpsServer, type Identity, identityFor, type TestServer } from "../../egress/servers.ts";

/** A registry of npm and an index of pip in one, with a package of each, on loopback. */
export interface RegistryServer extends TestServer {
  readonly identity: Identity;
  /** `METHOD PATH` of each request. */
  readonly requests: readonly string[];
  /** `sha512-BASE64` of the package of npm, and the hexadecimal SHA-256 of the wheel. */
  readonly integrity: string;
  readonly wheelDigest: string;
  /** Changes one byte of the files from now on. */
  spoil(): void;
}

/** What the package of npm has beside its name. */
export interface PackageContents {
  readonly manifest?: Readonly<Record<string, unknown>>;
  /** By path. */
  readonly files?: Readonly<Record<string, string>>;
}

/** For `npm.example` and `pypi.example`. Everything is below `/base`. */
export async function registryServer(further: PackageContents = {}): Promise<RegistryServer> {
  const { tarball, wheel } = await packages(further);
  const identity = identityFor("npm.example", "pypi.example");
  const requests: string[] = [];
  let spoilt = false;
  const file = (content: Buffer): Buffer => {
    const copy = Buffer.from(content);
    if (spoilt) copy[copy.length - 1] = (copy.at(-1) ?? 0) ^ 1;
    return copy;
  };
  const integrity = `sha512-${createHash("sha512").update(tarball).digest("base64")}`;
  const wheelDigest = createHash("sha256").update(wheel).digest("hex");
  const server = await httpsServer(identity, (request, response) => {
    requests.push(`${request.method} ${request.url}`);
    const send = (type: string, body: string | Buffer) => response.setHeader("content-type", type).end(body);
    const origin = `https://${request.headers.host}`;
    if (request.url === "/base/@acme%2fdemo") {
      const dist = { tarball: `${origin}/base/@acme/demo/-/demo-1.0.0.tgz`, integrity };
      const versions = { "1.0.0": { name: "@acme/demo", version: "1.0.0", dist } };
      send("application/json", JSON.stringify({ name: "@acme/demo", "dist-tags": { latest: "1.0.0" }, versions }));
    } else if (request.url === "/base/@acme/demo/-/demo-1.0.0.tgz") send("application/octet-stream", file(tarball));
    else if (request.url === "/base/simple/demo/") {
      const wheelUrl = `${origin}/base/packages/demo-1.0-py3-none-any.whl#sha256=${wheelDigest}`;
      send("text/html", `<!DOCTYPE html><a href="${wheelUrl}">demo-1.0-py3-none-any.whl</a>`);
    } else if (request.url === "/base/packages/demo-1.0-py3-none-any.whl") send("application/zip", file(wheel));
    else response.writeHead(404).end();
  });
  return {
    ...{ port: server.port, connections: server.connections, identity, requests, integrity, wheelDigest },
    spoil: () => {
      spoilt = true;
    },
    [Symbol.asyncDispose]: () => server[Symbol.asyncDispose](),
  };
}

async function packages({ manifest = {}, files = {} }: PackageContents): Promise<{ tarball: Buffer; wheel: Buffer }> {
  const dir = await mkdtemp(join(tmpdir(), "corral-packages-"));
  try {
    await mkdir(join(dir, "package"));
    await mkdir(join(dir, "demo-1.0.dist-info"));
    const texts = {
      "package/package.json": JSON.stringify({ name: "@acme/demo", version: "1.0.0", ...manifest }),
      ...Object.fromEntries(Object.entries(files).map(([path, text]) => [`package/${path}`, text])),
      "demo.py": "word = 'hello from a wheel'\n",
      "demo-1.0.dist-info/METADATA": "Metadata-Version: 2.1\nName: demo\nVersion: 1.0\n",
      "demo-1.0.dist-info/WHEEL": "Wheel-Version: 1.0\nGenerator: test\nRoot-Is-Purelib: true\nTag: py3-none-any\n",
      "demo-1.0.dist-info/RECORD":
        "demo.py,,\ndemo-1.0.dist-info/METADATA,,\ndemo-1.0.dist-info/WHEEL,,\ndemo-1.0.dist-info/RECORD,,\n",
    };
    for (const [name, text] of Object.entries(texts)) await writeFile(join(dir, name), text);
    execFileSync("tar", ["-czf", "demo.tgz", "package"], { cwd: dir });
    execFileSync("python3", ["-m", "zipfile", "-c", "demo.whl", "demo.py", "demo-1.0.dist-info"], { cwd: dir });
    const [tarball, wheel] = await Promise.all(["demo.tgz", "demo.whl"].map((name) => readFile(join(dir, name))));
    return { tarball: tarball ?? Buffer.alloc(0), wheel: wheel ?? Buffer.alloc(0) };
  } finally {
    await rm(dir, { recursive: true });
  }
}
