import { randomBytes } from "node:crypto";
import { join } from "node:path";
import { FleetJournal } from "../../src/fleet/journal/journal.ts";
import type { FleetStore } from "../../src/fleet/model/store.ts";
import type { Connection } from "../../src/fleet/postgres/connection.ts";
import { PostgresStore } from "../../src/fleet/postgres/postgres-store.ts";
import { connectServer } from "../../src/fleet/postgres/server.ts";
import { type ServerFixture, startServer } from "../../test/fleet/postgres/server-fixture.ts";
import { processorMs } from "./processor-time.ts";

/** An own server of PostgreSQL for the bench. */
export interface OwnServer extends AsyncDisposable {
  readonly server: ServerFixture;
  /** As another process would have it. */
  connect(self?: string): Promise<PostgresStore>;
  connection(): Promise<Connection>;
}

/** `isDurable`: with `fsync`, as users have it. */
export async function ownServer(isDurable: boolean): Promise<OwnServer> {
  const server = await startServer({ isDurable });
  const project = randomBytes(32).toString("hex");
  return {
    server,
    connect: async (self = "the bench") =>
      await PostgresStore.open(await connectServer(server.url), {
        project,
        self,
        isDead: () => false,
        isAlive: () => true,
      }),
    connection: () => connectServer(server.url),
    [Symbol.asyncDispose]: () => server[Symbol.asyncDispose](),
  };
}

export async function sqliteStore(dir: string): Promise<FleetStore> {
  return await FleetJournal.open(join(dir, "queue.db"), { self: "the bench", isDead: () => false });
}

/** User and system time of this process until now. */
export function ownMs(): number {
  const { user, system } = process.cpuUsage();
  return (user + system) / 1000;
}

/** The same of a server and its processes. */
export function serverMs({ server }: OwnServer): number {
  return processorMs(server.pid);
}
