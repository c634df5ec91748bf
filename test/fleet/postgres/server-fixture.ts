import { execFileSync, spawn } from "node:child_process";
import { once } from "node:events";
import { chmodSync, chownSync, globSync, mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { setTimeout as sleep } from "node:timers/promises";

/** A PostgreSQL server of its own, in a temporary directory, that only listens on a socket there. */
export interface ServerFixture extends AsyncDisposable {
  readonly url: string;
  readonly dir: string;
  /** Of its first process; of the last one that was started. */
  readonly pid: number;
  /** Ends it as a failure of the machine would. */
  kill(): Promise<void>;
  /** After it was killed. */
  start(): Promise<void>;
}

/** Where Debian and others have the programs; null: there are none. */
export function serverPrograms(): string | null {
  const [newest] = globSync(["/usr/lib/postgresql/*/bin/postgres", "/usr/pgsql-*/bin/postgres"]).sort().reverse();
  return newest === undefined ? null : join(newest, "..");
}

/** PostgreSQL refuses to run as root. */
const ID = 65534;
const READY_MS = 30_000;

/** `isDurable`: what is committed is on the disk, as for users; otherwise it is quicker. */
export async function startServer({
  isDurable = false,
}: {
  readonly isDurable?: boolean;
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
  const begin = () =>
    spawn(
      join(bin, "postgres"),
      [
        "-D",
        data,
        "-k",
        dir,
        "-c",
        "listen_addresses=",
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
        execFileSync(join(bin, "pg_isready"), ["-q", "-h", dir], { env, stdio: "ignore" });
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
    url: `postgres://postgres@localhost/postgres?host=${encodeURIComponent(dir)}`,
    dir,
    get pid() {
      return child.pid ?? 0;
    },
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
