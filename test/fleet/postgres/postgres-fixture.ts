import { randomBytes } from "node:crypto";
import { inject } from "vitest";
import { type Connection, SCHEMA } from "../../../src/fleet/postgres/connection.ts";
import { PostgresStore } from "../../../src/fleet/postgres/postgres-store.ts";
import { connectServer } from "../../../src/fleet/postgres/server.ts";
import { storeKind } from "../journal/store-kind.ts";
import { openPglite, pgliteConnection } from "./pglite-connection.ts";

/** A project of a test's own in the database of this worker. */
export interface PostgresFixture {
  readonly project: string;
  /** As another process would have it. Owners called `dead…` are dead. */
  open(self?: string, now?: () => number): Promise<PostgresStore>;
  /** Statements on the tables, `corral.…`. */
  query<Row>(text: string, values?: readonly unknown[]): Promise<Row[]>;
}

let database: Promise<{ readonly schema: string; connect(): Promise<Connection> }> | null = null;

/** The files of a worker share it, since making one takes a second. */
async function ofWorker() {
  if (storeKind() === "pglite") {
    const pglite = await openPglite();
    return { schema: SCHEMA, connect: async () => pgliteConnection(pglite) };
  }
  const url = inject("postgres");
  if (url === undefined) throw new Error("this project of tests has no PostgreSQL server");
  const schema = `test_${randomBytes(6).toString("hex")}`;
  return { schema, connect: () => connectServer(url, schema) };
}

export function postgresFixture(): PostgresFixture {
  const project = randomBytes(32).toString("hex");
  const at = () => (database ??= ofWorker());
  return {
    project,
    async open(self = "me", now) {
      const { schema, connect } = await at();
      return await PostgresStore.open(await connect(), {
        ...{ project, schema, self },
        isDead: (owner) => owner.startsWith("dead"),
        isAlive: () => false,
        ...(now === undefined ? {} : { now }),
      });
    },
    async query(text, values) {
      await using connection = await (await at()).connect();
      return await connection.query(text, values);
    },
  };
}
