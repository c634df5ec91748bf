import { readFileSync } from "node:fs";
import { access, readFile } from "node:fs/promises";
import { homedir } from "node:os";
import { join } from "node:path";
import { z } from "zod";
import { nullFor } from "../../platform/errno.ts";
import { sha256 } from "../../platform/sha256.ts";

export type Env = Readonly<Record<string, string | undefined>>;
export type EndpointSource = "DOCKER_HOST" | `context ${string}` | "default";

/** The address of the Engine, and which setting it comes from. Nothing has been connected yet. */
export interface Endpoint {
  /** `unix:///…` or `tcp://host:port`. */
  readonly url: string;
  readonly source: EndpointSource;
  /** Absent: a plain connection. */
  readonly tls?: { readonly ca?: Buffer; readonly cert?: Buffer; readonly key?: Buffer; readonly verify: boolean };
}

/** For people: the address, and the setting that it comes from. */
export function describeEndpoint({ url, source }: Pick<Endpoint, "url" | "source">): string {
  return `${url} (${source === "default" ? "the default" : `from ${source}`})`;
}

export const DEFAULT_SOCKET = "/var/run/docker.sock";

/**
 * Finds the Engine as the docker client does: DOCKER_HOST, then DOCKER_CONTEXT, then the client's current context,
 * then the default socket. Throws an `Error` whose message says which setting is wrong.
 */
export async function resolveEndpoint(env: Env): Promise<Endpoint> {
  if (env.DOCKER_HOST) return fromDockerHost(env.DOCKER_HOST, env);
  const configDir = env.DOCKER_CONFIG || join(env.HOME || homedir(), ".docker");
  const context = env.DOCKER_CONTEXT || currentContext(configDir);
  if (context && context !== "default") return fromContext(context, configDir);
  return { url: `unix://${DEFAULT_SOCKET}`, source: "default" };
}

async function fromDockerHost(raw: string, env: Env): Promise<Endpoint> {
  const endpoint: Endpoint = { url: parseUrl(raw), source: "DOCKER_HOST" };
  if (!endpoint.url.startsWith("tcp://") || !(env.DOCKER_TLS_VERIFY || env.DOCKER_TLS)) return endpoint;
  const certDir = env.DOCKER_CERT_PATH || env.DOCKER_CONFIG || join(env.HOME || homedir(), ".docker");
  return { ...endpoint, tls: { ...(await readTlsFiles(certDir)), verify: Boolean(env.DOCKER_TLS_VERIFY) } };
}

const ContextMeta = z.object({
  Endpoints: z.object({ docker: z.object({ Host: z.string(), SkipTLSVerify: z.boolean().optional() }) }),
});

async function fromContext(name: string, configDir: string): Promise<Endpoint> {
  const id = sha256(name);
  const metaFile = join(configDir, "contexts", "meta", id, "meta.json");
  const meta = ContextMeta.safeParse(readJson(metaFile));
  if (!meta.success)
    throw new Error(`the docker context ${JSON.stringify(name)} has no usable description in ${metaFile}`);
  const { Host: host, SkipTLSVerify: skipVerify } = meta.data.Endpoints.docker;
  const endpoint: Endpoint = { url: parseUrl(host), source: `context ${name}` };
  const tlsDir = join(configDir, "contexts", "tls", id, "docker");
  if (!endpoint.url.startsWith("tcp://") || !(await exists(tlsDir))) return endpoint;
  return { ...endpoint, tls: { ...(await readTlsFiles(tlsDir)), verify: !skipVerify } };
}

function currentContext(configDir: string): string | undefined {
  const config = z
    .object({ currentContext: z.string().optional() })
    .safeParse(readJson(join(configDir, "config.json")));
  return config.data?.currentContext;
}

function parseUrl(raw: string): string {
  const url = raw.includes("://") ? raw : `tcp://${raw}`;
  const scheme = url.slice(0, url.indexOf("://"));
  if (scheme === "unix") return url === "unix://" ? `unix://${DEFAULT_SOCKET}` : url;
  if (scheme === "ssh")
    throw new Error(
      `${raw}: an Engine on another host (ssh://) cannot run cells, because mounts are checked on this host`,
    );
  if (scheme !== "tcp" || !URL.parse(url)?.hostname)
    throw new Error(`${raw}: only unix:// and tcp:// endpoints are supported`);
  return url;
}

async function readTlsFiles(dir: string) {
  const [ca, cert, key] = await Promise.all(
    ["ca.pem", "cert.pem", "key.pem"].map((name) => readFile(join(dir, name)).catch(nullFor("ENOENT"))),
  );
  return { ...(ca && { ca }), ...(cert && { cert }), ...(key && { key }) };
}

/** Without waiting, so that the Engine is asked before anything else is loaded. */
function textIfThere(file: string): string | null {
  try {
    return readFileSync(file, "utf8");
  } catch (error) {
    return nullFor("ENOENT")(error);
  }
}

/** `undefined` if the file is missing, which is usual. A file that is not JSON is an error. */
function readJson(file: string): unknown {
  const text = textIfThere(file);
  if (!text) return undefined;
  try {
    return JSON.parse(text);
  } catch (cause) {
    throw new Error(`${file} is not JSON`, { cause });
  }
}

async function exists(path: string): Promise<boolean> {
  return access(path).then(
    () => true,
    () => false,
  );
}
