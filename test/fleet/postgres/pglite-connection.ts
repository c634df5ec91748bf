import { PGlite, types } from "@electric-sql/pglite";
import {
  type Connection,
  type Rows,
  SCHEMA,
  type Statements,
  schemaTexts,
  storable,
} from "../../../src/fleet/postgres/connection.ts";

/** PostgreSQL in this process. It has one session: others wait for the transaction of one. */
export async function openPglite(): Promise<PGlite> {
  return await PGlite.create({ parsers: { [types.INT8]: Number } });
}

/** As another process would have it. Closing it leaves the database open. */
export function pgliteConnection(database: PGlite, schema = SCHEMA): Connection {
  const texts = schemaTexts(schema);
  const on = (session: Pick<PGlite, "query">): Statements => ({
    query: async <Row>(text: string, values: readonly unknown[] = []) =>
      (await session.query<Row>(texts(text), values.map(storable))).rows,
  });
  let isClosed = false;
  const open = (): void => {
    if (isClosed) throw new Error("the connection is closed");
  };
  const transaction: Connection["transaction"] = async (work) => {
    open();
    return await database.transaction(async (session) => await work(on(session as unknown as PGlite), false));
  };
  return {
    query: async (text, values) => {
      open();
      return await on(database).query(text, values);
    },
    transaction,
    together: async (statements) =>
      await transaction(async (within, again) => {
        const rows: Rows[] = [];
        for (const { text, values } of statements(again)) rows.push(await within.query(text, values));
        return rows;
      }),
    endHolders: async () => 0,
    listen: async (heard) => void (await database.listen(SCHEMA, heard)),
    [Symbol.asyncDispose]: async () => {
      isClosed = true;
    },
  };
}
