import { execFile, execFileSync } from "node:child_process";
import { appendFileSync, chownSync, mkdirSync } from "node:fs";
import { join } from "node:path";
import { promisify } from "node:util";
import { serverPrograms } from "../../test/fleet/postgres/server-fixture.ts";

const execute = promisify(execFile);

/** PostgreSQL refuses to run as root. */
const ID = 65_534;
const SECONDS = "60";

/** A PostgreSQL server that keeps what it has committed, as that of a user does. */
export interface QueueServer extends AsyncDisposable {
  /** As the owner of the tables, over its socket. */
  readonly url: string;
  /** `immediate`: as if it was killed. It is started again at once. */
  restart(how: "fast" | "immediate"): Promise<void>;
}

/** `addresses`: where it listens beside its socket. Each user there needs no password. */
export async function startQueueServer(dir: string, addresses: readonly string[]): Promise<QueueServer> {
  const bin = serverPrograms();
  if (bin === null) throw new Error("there is no PostgreSQL server: apt-get install postgresql");
  mkdirSync(dir);
  chownSync(dir, ID, ID);
  const data = join(dir, "data");
  const env = { PATH: process.env.PATH ?? "", LC_ALL: "C.UTF-8", TZ: "UTC", HOME: dir };
  const as = { uid: ID, gid: ID, cwd: dir, env };
  const initial = ["-D", data, "-U", "postgres", "-A", "trust", "-E", "UTF8", "--no-instructions"];
  execFileSync(join(bin, "initdb"), initial, { ...as, stdio: ["ignore", "ignore", "inherit"] });
  appendFileSync(
    join(data, "postgresql.conf"),
    `listen_addresses = '${addresses.join(",")}'\nunix_socket_directories = '${dir}'\nmax_connections = 200\n` +
      "tcp_keepalives_idle = 5\ntcp_keepalives_interval = 5\ntcp_keepalives_count = 3\n",
  );
  appendFileSync(join(data, "pg_hba.conf"), "host all all 10.213.88.0/24 trust\n");
  const control = async (...args: readonly string[]): Promise<void> =>
    void (await execute(join(bin, "pg_ctl"), ["-D", data, "-w", "-t", SECONDS, "-l", join(dir, "log"), ...args], as));
  await control("start");
  return {
    url: `postgres://postgres@localhost/postgres?host=${encodeURIComponent(dir)}`,
    restart: (how) => control("restart", "-m", how),
    [Symbol.asyncDispose]: () => control("stop", "-m", "immediate").catch(() => {}),
  };
}
