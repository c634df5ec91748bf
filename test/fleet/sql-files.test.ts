import { readdirSync, readFileSync } from "node:fs";
import { join } from "node:path";
import { DatabaseSync } from "node:sqlite";
import { expect, it } from "vitest";
import { PostgresStore } from "../../src/fleet/postgres/postgres-store.ts";
import { POSTGRES, READ_STATEMENTS, readStatement, SQLITE } from "../../src/fleet/stored/fleet-reads.ts";
import { openPglite, pgliteConnection } from "./postgres/pglite-connection.ts";

const FLEET = join(import.meta.dirname, "../../src/fleet");
/** What the callers of these statements leave open. */
const OPEN = { STATUS: "AND i.status = $4", INDEX: "", TERMS: "AND i.failed = 1", FAILED: "AND i.failed = 1" };
/** The parameter that names the owner of the fleet. */
const SELF: Readonly<Record<string, string>> = { "requeue.sql": "$7", "begin.sql": "$9", "settle.sql": "$15" };

it("each statement that both stores read with is one of SQLite's, on the tables of the journal", () => {
  using db = new DatabaseSync(":memory:");
  for (const step of ["schema.sql"]) db.exec(readFileSync(join(FLEET, "journal", step), "utf8"));
  db.exec("ALTER TABLE items ADD COLUMN cause TEXT; ALTER TABLE items ADD COLUMN earlier INTEGER NOT NULL DEFAULT 0");
  db.exec("CREATE TABLE streams (item INTEGER PRIMARY KEY, stdout BLOB, stderr BLOB)");
  db.exec("CREATE TABLE attempts (item INTEGER NOT NULL, attempt INTEGER NOT NULL, json TEXT NOT NULL)");
  expect(READ_STATEMENTS.length).toBeGreaterThan(12);
  for (const name of READ_STATEMENTS) db.prepare(readStatement(SQLITE, name, OPEN));
  expect(() => db.prepare(readStatement(SQLITE, "keys").replace("i.key", "i.none"))).toThrow("no such column");
});

it("each statement in a file is one of PostgreSQL's, on its tables", async () => {
  await using database = await openPglite();
  await using store = await PostgresStore.open(pgliteConnection(database), {
    project: "p",
    self: "me",
    isDead: () => false,
    isAlive: () => true,
  });
  expect(await store.list()).toEqual([]);
  const prepare = async (sql: string): Promise<void> => {
    await database.exec(`PREPARE one AS ${sql.trim().replace(/;$/, "")}`);
    await database.exec("DEALLOCATE one");
  };
  for (const name of READ_STATEMENTS) await prepare(readStatement(POSTGRES, name, OPEN));
  const files = readdirSync(join(FLEET, "postgres/sql")).filter((name) => name !== "machine-role.sql");
  expect(files.length).toBeGreaterThan(5);
  for (const file of files) {
    const text = readFileSync(join(FLEET, "postgres/sql", file), "utf8")
      .replaceAll("@OWNED@", `owned AS (SELECT 1 WHERE ${SELF[file]}::text = '')`)
      .replaceAll("@IS_OWNED@", "true")
      .replaceAll("@ACTIVE@", "state = 'running'")
      .replace(/@[A-Z][A-Z_]*@/g, "1");
    await prepare(text).catch((error: unknown) => Promise.reject(new Error(`${file}: ${String(error)}`)));
  }
  await expect(prepare("SELECT none FROM corral.items")).rejects.toThrow(/none/);
});
