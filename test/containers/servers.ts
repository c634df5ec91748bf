import { createHash } from "node:crypto";
import { once } from "node:events";
import { readFile } from "node:fs/promises";
import { type AddressInfo, createServer } from "node:net";
import { join } from "node:path";
import type Docker from "dockerode";
import { GenericContainer, type StartedTestContainer, Wait } from "testcontainers";
import { buildImage } from "../../src/isolation/engine/images/build-images.ts";

/** A server in a container of its own; disposing removes it. */
export interface Server extends AsyncDisposable {
  readonly port: number;
}

const DOCKERFILE = join(import.meta.dirname, "Dockerfile");

/** The image of all servers. It is built once, which takes a minute, and kept. */
export async function serversImage(docker: Docker): Promise<string> {
  const content = await readFile(DOCKERFILE);
  const tag = `corral-test/servers:${createHash("sha256").update(content).digest("hex").slice(0, 12)}`;
  const isThere = await docker
    .getImage(tag)
    .inspect()
    .then(
      () => true,
      () => false,
    );
  if (isThere) return tag;
  await buildImage({
    ...{ docker, tag, shownAs: tag, files: [{ name: "Dockerfile", content }], arguments: {}, labels: {}, proxies: {} },
    network: "host",
    onProgress: () => {},
  });
  return tag;
}

export async function postgresServer(image: string): Promise<Server> {
  const port = await freePort();
  const programs = "/usr/lib/postgresql/15/bin";
  const script = `${programs}/initdb -D /tmp/data -U postgres -A trust --no-sync >/dev/null &&
    exec ${programs}/postgres -D /tmp/data -k /tmp -p ${port} -c listen_addresses=127.0.0.1 -c fsync=off`;
  const container = new GenericContainer(image).withUser("postgres").withCommand(["sh", "-c", script]);
  return await started(container, /database system is ready to accept connections/, port);
}

/** In transaction mode, with what docs/machines.md says that a pooler needs. */
export async function pgBouncer(image: string, behind: Server): Promise<Server> {
  const port = await freePort();
  const settings = `[databases]
* = host=127.0.0.1 port=${behind.port}
[pgbouncer]
listen_addr = 127.0.0.1
listen_port = ${port}
unix_socket_dir =
auth_type = trust
auth_file = /tmp/users
pool_mode = transaction
ignore_startup_parameters = statement_timeout, lock_timeout, options
`;
  const container = new GenericContainer(image)
    .withUser("postgres")
    .withCopyContentToContainer([
      { content: settings, target: "/tmp/pgbouncer.ini" },
      { content: '"postgres" ""\n', target: "/tmp/users" },
    ])
    .withCommand(["pgbouncer", "/tmp/pgbouncer.ini"]);
  return await started(container, /process up/, port);
}

export async function imageRegistryServer(image: string): Promise<Server> {
  const port = await freePort();
  const settings = {
    version: 0.1,
    storage: { filesystem: { rootdirectory: "/tmp/registry" } },
    http: { addr: `127.0.0.1:${port}` },
  };
  const container = new GenericContainer(image)
    .withCopyContentToContainer([{ content: JSON.stringify(settings), target: "/tmp/registry.json" }])
    .withCommand(["docker-registry", "serve", "/tmp/registry.json"]);
  return await started(container, /listening on/, port);
}

/** In the network of this machine: the Engine's own reaches no registry in a container everywhere, and a pooler only its own loopback. */
async function started(container: GenericContainer, isReady: RegExp, port: number): Promise<Server> {
  // Its cleaner is an image of a public registry, which the machine of a test may not reach. Each server is ended by its test.
  process.env.TESTCONTAINERS_RYUK_DISABLED = "true";
  const running: StartedTestContainer = await container
    .withNetworkMode("host")
    .withWaitStrategy(Wait.forLogMessage(isReady))
    .withStartupTimeout(60_000)
    .start();
  return {
    port,
    [Symbol.asyncDispose]: async () => void (await running.stop({ timeout: 0, remove: true, removeVolumes: true })),
  };
}

async function freePort(): Promise<number> {
  const server = createServer().listen(0, "127.0.0.1");
  await once(server, "listening");
  const { port } = server.address() as AddressInfo;
  server.close();
  await once(server, "close");
  return port;
}
