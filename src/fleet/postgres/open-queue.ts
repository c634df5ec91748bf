import { createHash } from "node:crypto";
import { currentOwner, formatOwner, isAlive, isDead, parseOwner } from "../../state/owner.ts";
import { PostgresStore } from "./postgres-store.ts";
import { connectServer } from "./server.ts";

/** Opens the fleets of a project in a PostgreSQL database. @throws QueueError if it does not answer, refuses, or is newer */
export async function openQueue(url: string, projectDir: string): Promise<PostgresStore> {
  const self = currentOwner();
  const machine = self.machine.replace(/(?<=.)@.*/, "");
  const project = createHash("sha256").update(`${machine}\0${projectDir}`).digest("hex");
  const asked = (whether: typeof isDead) => (name: string) => {
    const owner = parseOwner(name);
    return owner !== null && whether(owner, self);
  };
  return await PostgresStore.open(await connectServer(url), {
    ...{ project, self: formatOwner(self) },
    isDead: asked(isDead),
    isAlive: asked(isAlive),
  });
}

/** What a PostgreSQL server says of itself. @throws QueueError if it does not answer, refuses, or is newer */
export async function examineQueue(url: string): Promise<string> {
  await using db = await connectServer(url);
  const [row] = await db.query<{ version: string; tls: boolean; corral: boolean }>(
    `SELECT current_setting('server_version') AS version, to_regclass('corral.version') IS NOT NULL AS corral,
       coalesce((SELECT ssl FROM pg_stat_ssl WHERE pid = pg_backend_pid()), false) AS tls`,
  );
  const { version = "", tls = false, corral = false } = row ?? {};
  return `PostgreSQL ${version}, ${tls ? "over TLS" : "without TLS"}, ${corral ? "with Corral's tables" : "without Corral's tables: the first fleet makes them"}`;
}
