import { execFileSync, spawn } from "node:child_process";
import { once } from "node:events";
import { chmodSync, chownSync, globSync, mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { type AddressInfo, createServer } from "node:net";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { setTimeout as sleep } from "node:timers/promises";

/** A PostgreSQL server of its own, in a temporary directory, that only listens on a socket there. */
export interface ServerFixture extends AsyncDisposable {
  readonly url: string;
  readonly dir: string;
  /** Of its first process; of the last one that was started. */
  readonly pid: number;
  /** Where it takes connections with TLS and passwords too; null: it does not. */
  readonly tls: TlsPlace | null;
  /** Ends it as a failure of the machine would. */
  kill(): Promise<void>;
  /** After it was killed. */
  start(): Promise<void>;
}

export interface TlsPlace {
  readonly port: number;
  /** The file of the authority that signed its certificate, which is for `localhost` alone. */
  readonly authority: string;
}

/** Where Debian and others have the programs; null: there are none. */
export function serverPrograms(): string | null {
  const [newest] = globSync(["/usr/lib/postgresql/*/bin/postgres", "/usr/pgsql-*/bin/postgres"]).sort().reverse();
  return newest === undefined ? null : join(newest, "..");
}

/** PostgreSQL refuses to run as root. */
const ID = 65534;
const READY_MS = 30_000;

/** Any local user is trusted on the socket; over the network everybody needs TLS and a password. */
const HBA = "local all all trust\nhostssl all all 127.0.0.1/32 scram-sha-256\n";

/** `isDurable`: what is committed is on the disk, as for users; otherwise it is quicker. `tls`: see {@link ServerFixture.tls}. */
export async function startServer({
  isDurable = false,
  tls = false,
}: {
  readonly isDurable?: boolean;
  readonly tls?: boolean;
} = {}): Promise<ServerFixture> {
  const bin = serverPrograms();
  if (bin === null) throw new Error("there is no PostgreSQL server: apt-get install postgresql");
  const dir = mkdtempSync(join(tmpdir(), "corral-postgres-"));
  const isRoot = process.getuid?.() === 0;
  const as = isRoot ? { uid: ID, gid: ID } : {};
  if (isRoot) chownSync(dir, ID, ID);
  chmodSync(dir, 0o755);
  const data = join(dir, "data");
  const env = { PATH: process.env.PATH ?? "", LC_ALL: "C.UTF-8", TZ: "UTC", HOME: dir };
  execFileSync(
    join(bin, "initdb"),
    ["-D", data, "-U", "postgres", "-A", "trust", "-E", "UTF8", "--no-sync", "--no-instructions"],
    {
      ...as,
      cwd: dir,
      env,
      stdio: ["ignore", "ignore", "inherit"],
    },
  );
  const place = tls ? await tlsPlace(dir) : null;
  if (isRoot && place !== null) chownSync(join(dir, "server.key"), ID, ID);
  const network =
    place === null
      ? ["listen_addresses="]
      : [
          ...["listen_addresses=127.0.0.1", `port=${place.port}`, `hba_file=${join(dir, "hba.conf")}`, "ssl=on"],
          ...[`ssl_cert_file=${join(dir, "server.pem")}`, `ssl_key_file=${join(dir, "server.key")}`],
        ];
  const begin = () =>
    spawn(
      join(bin, "postgres"),
      [
        "-D",
        data,
        "-k",
        dir,
        ...network.flatMap((setting) => ["-c", setting]),
        "-c",
        `fsync=${isDurable ? "on" : "off"}`,
        "-c",
        "max_connections=100",
        "-c",
        "log_min_messages=fatal",
      ],
      { ...as, cwd: dir, env, stdio: ["ignore", "ignore", "ignore"] },
    );
  let child = begin();
  const ready = async (): Promise<void> => {
    const startedAt = performance.now();
    for (;;) {
      try {
        execFileSync(join(bin, "pg_isready"), ["-q", "-h", dir, "-p", String(place?.port ?? 5432)], {
          env,
          stdio: "ignore",
        });
        return;
      } catch {
        if (child.exitCode !== null || performance.now() - startedAt > READY_MS)
          throw new Error("the PostgreSQL server of the tests does not start");
        await sleep(50);
      }
    }
  };
  const ended = async (signal: NodeJS.Signals): Promise<void> => {
    if (child.exitCode !== null || child.signalCode !== null) return;
    const exit = once(child, "exit");
    child.kill(signal);
    await exit;
  };
  await ready();
  return {
    url: `postgres://postgres@localhost${place === null ? "" : `:${place.port}`}/postgres?host=${encodeURIComponent(dir)}`,
    dir,
    get pid() {
      return child.pid ?? 0;
    },
    tls: place,
    kill: () => ended("SIGQUIT"),
    start: async () => {
      child = begin();
      await ready();
    },
    async [Symbol.asyncDispose]() {
      // At once, without waiting for clients.
      await ended("SIGQUIT");
      rmSync(dir, { recursive: true, force: true });
    },
  };
}

/** An authority of its own, and a certificate for `localhost` that it signed. */
async function tlsPlace(dir: string): Promise<TlsPlace> {
  const openssl = (...args: string[]): void => void execFileSync("openssl", args, { cwd: dir, stdio: "ignore" });
  const key = ["-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes", "-days", "2"];
  openssl(
    "req",
    "-x509",
    ...key,
    "-subj",
    "/CN=authority of a test",
    "-keyout",
    "authority.key",
    "-out",
    "authority.pem",
  );
  openssl(
    ...["req", "-x509", ...key, "-subj", "/CN=server", "-addext", "subjectAltName=DNS:localhost"],
    ...["-CA", "authority.pem", "-CAkey", "authority.key", "-keyout", "server.key", "-out", "server.pem"],
  );
  writeFileSync(join(dir, "hba.conf"), HBA);
  return { port: await freePort(), authority: join(dir, "authority.pem") };
}

async function freePort(): Promise<number> {
  const server = createServer().listen(0, "127.0.0.1");
  await once(server, "listening");
  const { port } = server.address() as AddressInfo;
  server.close();
  await once(server, "close");
  return port;
}
