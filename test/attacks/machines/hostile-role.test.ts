import { randomBytes } from "node:crypto";
import { readFileSync } from "node:fs";
import pg from "pg";
import { afterAll, afterEach, beforeAll, describe, expect, inject, it } from "vitest";
import { blobDigest, type Content, putBytes, wholeBlob } from "../../../src/blobs/blob.ts";
import { PostgresBlobs } from "../../../src/blobs/postgres-blobs.ts";
import type { Connection } from "../../../src/fleet/postgres/connection.ts";
import { PERSISTENCE } from "../../../src/fleet/postgres/lost-connection.ts";
import { machineRoleScript, migrate, stepsOf } from "../../../src/fleet/postgres/migrate.ts";
import { PostgresStore } from "../../../src/fleet/postgres/postgres-store.ts";
import { connectServer } from "../../../src/fleet/postgres/server.ts";
import { deliveredResult } from "../../../src/fleet/running/deliveries.ts";
import { SchemaChecks } from "../../../src/run/model/job.ts";
import { items, noCollisions, SPEC, settlementOf } from "../../fleet/journal/journal-fixture.ts";
import { startServer } from "../../fleet/postgres/server-fixture.ts";

const name = (what: string): string => `${what}_${randomBytes(4).toString("hex")}`;
const [database, owner, role, otherRole] = [name("db"), name("owner"), name("machine"), name("other")];
/** Of the coordinator's connection: users wait for ten seconds. */
const LOCK_MS = 300;
const AGREED = { declarations: {}, images: {}, trees: {} };

let coordinator: PostgresStore;
let asOwner: Connection;
let other: PostgresStore;
let fleet: string;
const open: pg.Client[] = [];

function urlOf(user: string): string {
  return (inject("postgres") ?? "").replace("postgres@", `${user}@`).replace("/postgres?", `/${database}?`);
}

/** A program of its own with the rights of a machine, and with any statement that it likes. */
async function attacker(user = role, where = database): Promise<pg.Client> {
  const { searchParams, port } = new URL(inject("postgres") ?? "");
  const client = new pg.Client({
    user,
    database: where,
    host: searchParams.get("host") ?? "",
    port: Number(port || 5432),
  });
  client.on("error", () => {});
  await client.connect();
  open.push(client);
  return client;
}

async function told<T = string>(client: pg.Client, text: string, values: readonly unknown[] = []): Promise<T> {
  return Object.values((await client.query(text, [...values])).rows[0] ?? {})[0] as T;
}

const joined = (client: pg.Client, slots = 1): Promise<string> =>
  told(client, "SELECT corral.machine_join('m', '{}', $1, '0', 60000)", [slots]);

async function newFleet(count: number): Promise<string> {
  const id = await coordinator.create({ ...SPEC, machines: { needs: [], priority: 0, weight: 1 } });
  await coordinator.load(id, items(count), noCollisions);
  await coordinator.work.offer(id, AGREED);
  return id;
}

const opened = async (user: string, self: string): Promise<PostgresStore> =>
  await PostgresStore.open(await connectServer(urlOf(user), "corral", { ...PERSISTENCE, lockMs: LOCK_MS }), {
    ...{ project: "p", self, isDead: () => false, isAlive: () => false },
  });

beforeAll(async () => {
  await using admin = await connectServer(inject("postgres") ?? "");
  await admin.query(`CREATE ROLE ${owner} LOGIN`);
  await admin.query(`CREATE DATABASE ${database} OWNER ${owner}`);
  coordinator = await opened(owner, "coordinator");
  asOwner = await connectServer(urlOf(owner), "corral", { ...PERSISTENCE, lockMs: LOCK_MS });
  const superuser = await attacker("postgres");
  for (const each of [role, otherRole]) await superuser.query(machineRoleScript(each, "0"));
  // As PostgreSQL before version 15 has it.
  await superuser.query("GRANT CREATE ON SCHEMA public TO PUBLIC");
  other = await opened(otherRole, "other");
});
afterEach(async () => {
  for (const client of open.splice(0)) await client.end().catch(() => {});
  if (fleet !== "") await coordinator.work.drain(fleet);
  fleet = "";
});
afterAll(async () => {
  for (const each of [other, coordinator, asOwner]) await each[Symbol.asyncDispose]();
  await using admin = await connectServer(inject("postgres") ?? "");
  await admin.query(`DROP DATABASE ${database} WITH (FORCE)`);
});

describe("a transaction that a hostile machine leaves open", () => {
  it("with a delivery does not keep its item from being taken back", async () => {
    fleet = await newFleet(1);
    const client = await attacker();
    const id = await joined(client);
    await client.query("SELECT corral.machine_claim($1, $2, '{t}')", [id, [fleet]]);
    await client.query("BEGIN");
    expect(
      await told(client, "SELECT corral.machine_deliver($1, $2, 0, 1, '{}', null, null, null, '{}')", [id, fleet]),
    ).toBe("taken");
    expect(await coordinator.work.reclaim(fleet, -1)).toBe(1);
    await expect(client.query("COMMIT")).rejects.toThrow(/terminat|connection error/);
    const { items: claimed } = await (await coordinator.queue(fleet)).claim(1, () => ({ run: "r", cell: null }));
    expect(claimed).toMatchObject([{ attempt: 2 }]);
  });

  it("with a claim keeps no item for longer than a coordinator allows, and does not keep a fleet from being cancelled", async () => {
    fleet = await newFleet(2);
    const client = await attacker();
    const id = await joined(client);
    await client.query("BEGIN");
    await client.query("SELECT corral.machine_claim($1, $2, '{t}')", [id, [fleet]]);
    const queue = await coordinator.queue(fleet);
    // It may not be waited for by what claims.
    const first = await queue.claim(2, () => ({ run: name("r"), cell: null }));
    expect(first.items).toHaveLength(1);
    expect(await asOwner.endHolders(60_000)).toBe(0);
    await queue.requeue(1, 1, 0);
    expect(await queue.cancelQueued("it was cancelled")).toBe(2);
    expect(await coordinator.end(fleet)).toBe("cancelled");
    await expect(client.query("COMMIT")).rejects.toThrow(/terminat|connection error/);
  });

  it("with a blob that was used lately keeps nobody from it", async () => {
    const content = randomBytes(100);
    const blobs = [await coordinator.work.blobs(), await other.work.blobs()];
    const digest = await putBytes(await coordinator.work.blobs(), content);
    const client = await attacker();
    await client.query("BEGIN");
    await client.query("SELECT corral.blob_put($1, $2)", [digest, content]);
    await client.query("SELECT corral.blobs_has($1)", [[digest]]);
    for (const store of blobs) {
      expect((await store.has([digest])).size).toBe(1);
      await store.put({ digest, bytes: content.length }, [content] as unknown as Content);
    }
    // None of them had to be ended.
    await client.query("COMMIT");
  });

  it.each([
    ["with new content", ""],
    ["with content that was used long ago", "UPDATE corral.blobs SET used_at = now() - interval '3 days'"],
  ])("%s does not keep others from storing the same", async (_, before) => {
    const content = randomBytes(100);
    const client = await attacker();
    if (before !== "") {
      await putBytes(await coordinator.work.blobs(), content);
      await asOwner.query(before);
    }
    await client.query("BEGIN");
    await client.query("SELECT corral.blob_put($1, $2)", [blobDigest(content), content]);
    expect(await putBytes(await coordinator.work.blobs(), content)).toBe(blobDigest(content));
    await expect(client.query("COMMIT")).rejects.toThrow(/terminat|connection error/);
  });

  it("while it joins keeps no machine of another role from joining or storing, also not by what of others it removed", async () => {
    const [client, before] = [await attacker(), await attacker(otherRole)];
    const [dead] = [await joined(before)];
    await asOwner.query("UPDATE corral.processes SET lease_until = 1 WHERE id = $1", [dead]);
    await asOwner.query("INSERT INTO corral.paces VALUES ($1, 1, 1)", [dead]);
    await client.query("BEGIN");
    await joined(client);
    await client.query("SELECT corral.blob_put($1, $2)", [blobDigest(Buffer.from("x")), Buffer.from("x")]);
    await using member = await other.work.join({ name: "m", labels: [], slots: 1, version: "0" });
    expect(member.id).not.toBe("");
    await putBytes(await other.work.blobs(), randomBytes(10));
    await client.query("COMMIT");
  });

  it("does not keep the tables from being changed by a newer version, with a lock that any user may take", async () => {
    const client = await attacker();
    await client.query("SELECT pg_advisory_lock(7215318)");
    const reading = await attacker();
    await reading.query("BEGIN");
    await reading.query("SELECT * FROM corral.version");
    for (const statement of [
      "DROP TABLE corral.questions",
      "DROP FUNCTION corral.machine_ask, corral.machine_unask, corral.machine_answers",
    ])
      await asOwner.query(statement);
    await asOwner.query("UPDATE corral.version SET version = 5, steps = $1", [stepsOf(5)]);
    await using again = await opened(owner, "newer");
    expect(await again.find("none")).toBeNull();
    const superuser = await attacker("postgres");
    await superuser.query(machineRoleScript(role, "0"));
  });

  it("is not ended if it holds nothing, and no role but those of machines is", async () => {
    const [client, user] = [await attacker(), await attacker(owner)];
    await client.query("BEGIN");
    await client.query("SELECT version FROM corral.version");
    await user.query("BEGIN");
    await user.query("UPDATE corral.version SET version = version");
    expect(await asOwner.endHolders(0)).toBe(0);
    for (const each of [client, user]) await each.query("ROLLBACK");
  });
});

describe("what a hostile machine holds without a transaction, or in another database of the server", () => {
  it.each([
    ["an advisory lock", database, "SELECT pg_advisory_lock(1)"],
    ["an advisory lock in another database", "postgres", "SELECT pg_advisory_lock(1)"],
    [
      "thousands of locks on tables of its own",
      database,
      `DO $$ BEGIN FOR n IN 1 .. 1000 LOOP EXECUTE format('CREATE TEMP TABLE t%s (x text)', n); END LOOP; END $$`,
    ],
  ])("%s: its session is ended", async (_, where, statement) => {
    const client = await attacker(role, where);
    await client.query("SELECT 1");
    if (!statement.includes("advisory")) await client.query("BEGIN");
    // A coordinator of another test may look at the same time, and end it within the statement.
    const isEnded = await client.query(statement).then(
      () => false,
      ({ code }: { code: string }) => code === "57P01",
    );
    if (!isEnded) expect(await asOwner.endHolders(60_000)).toBe(1);
    await expect(client.query("SELECT 1")).rejects.toThrow();
  });

  it("the server's whole table of locks: the coordinator makes room", async () => {
    await using server = await startServer();
    await using first = await connectServer(server.url);
    await first.query(`CREATE ROLE ${owner} LOGIN`);
    await first.query(`GRANT CREATE ON DATABASE postgres TO ${owner}`);
    await using db = await connectServer(server.url.replace("postgres@", `${owner}@`));
    await migrate(db, "corral");
    const connect = async (user: string): Promise<pg.Client> => {
      const client = new pg.Client({ user, database: "postgres", host: server.dir });
      await client.on("error", () => {}).connect();
      open.push(client);
      return client;
    };
    await (await connect("postgres")).query(machineRoleScript(role, "0"));
    // As each coordinator looks, every 15 seconds.
    expect(await db.endHolders(60_000)).toBe(0);
    const codes = await Promise.all(
      [1, 2, 3].map(async (n) => {
        const client = await connect(role);
        const locks = client.query("SELECT pg_advisory_lock($1::int, g) FROM generate_series(1, 1000000) g", [n]);
        return await locks.then(
          () => "",
          ({ code }: { code: string }) => code,
        );
      }),
    );
    expect(codes).toContain("53200");
    expect(await db.query("UPDATE corral.version SET version = version RETURNING 1 AS n")).toEqual([{ n: 1 }]);
  });

  it("the queue of notices, which it listens to and never reads: its transaction is ended", async () => {
    const [reader, sender] = [await attacker(), await attacker(role, "postgres")];
    await reader.query("LISTEN corral");
    await reader.query("BEGIN");
    await reader.query("SELECT 1");
    const notices = "SELECT count(pg_notify('other', repeat('x', 7900) || g)) FROM generate_series(1, 1500) g";
    await sender.query(notices);
    expect(await asOwner.endHolders(0)).toBe(1);
    await expect(reader.query("SELECT 1")).rejects.toThrow();
  });
});

describe("notices without end of a hostile machine", () => {
  it("are heard no more, and those after a while are", async () => {
    const client = await attacker();
    let heard = 0;
    await asOwner.listen(() => {
      heard += 1;
    });
    await client.query("NOTIFY corral");
    await expect.poll(() => heard).toBeGreaterThan(0);
    const listeners = async () =>
      (
        await asOwner.query(
          "SELECT 1 FROM pg_stat_activity WHERE datname = current_database() AND query = 'LISTEN corral'",
        )
      ).length;
    const before = await listeners();
    await client.query("SELECT count(pg_notify('corral', repeat('x', 7900) || g)) FROM generate_series(1, 300) g");
    await expect.poll(listeners).toBe(before - 1);
    expect(heard).toBeLessThan(200);
    await expect.poll(listeners).toBe(before);
    heard = 0;
    await client.query("NOTIFY corral");
    await expect.poll(() => heard).toBeGreaterThan(0);
  });
});

describe("what a hostile machine writes elsewhere in the database", () => {
  it("is not called by the coordinator, also if every user may write to the schema public", async () => {
    fleet = await newFleet(1);
    const client = await attacker();
    // They fit better than PostgreSQL's own, which takes arrays of any type.
    for (const type of ["text", "integer", "bigint"])
      await client.query(
        `CREATE FUNCTION public.unnest(${type}[]) RETURNS SETOF ${type} LANGUAGE plpgsql AS
         $$ BEGIN RAISE EXCEPTION 'the code of a machine, as %', current_user; END $$`,
      );
    const queue = await coordinator.queue(fleet);
    const { items: claimed } = await queue.claim(1, () => ({ run: "r", cell: null }));
    await asOwner.query("UPDATE corral.requests SET attached = 'one two'");
    expect((await coordinator.work.referred()).files).toEqual(expect.arrayContaining(["one", "two"]));
    expect(await queue.settle(0, 1, settlementOf(0, { run: claimed[0]?.run ?? "" }))).toEqual({ ok: true });
    await (await coordinator.work.blobs()).sweep({ isKept: () => true, olderThanMs: 0 });
    expect(await coordinator.end(fleet)).toBe("done");
  });
});

describe("a database of its own for Corral", () => {
  it("has no place where a machine can store things past its limits, after the statements of docs/machines.md", async () => {
    const docs = readFileSync(new URL("../../../docs/machines.md", import.meta.url), "utf8");
    const [, statements = ""] = /```sql\n(ALTER ROLE corral_machine CONNECTION LIMIT[^`]*)```/.exec(docs) ?? [];
    const superuser = await attacker("postgres");
    await superuser.query(
      statements.replaceAll("corral_machine", role).replaceAll("DATABASE fleets", `DATABASE ${database}`),
    );
    const client = await attacker();
    for (const statement of [
      "CREATE TEMP TABLE t AS SELECT 1 AS x",
      "CREATE TABLE public.t (x int)",
      "CREATE SCHEMA mine",
      "SELECT lo_creat(-1)",
      "SELECT lo_create(0)",
      "SELECT lo_from_bytea(0, 'x')",
      "SELECT lo_import('/etc/hostname')",
    ])
      await expect(client.query(statement), statement).rejects.toThrow(/permission denied/);
    expect(await joined(client)).not.toBe("");
  });
});

/** What a statement says on every connection, also if its role has settings. */
const AS_EVER = {
  user: role,
  level: "read committed",
  list: ["a", null],
  x: 0.1,
  isReadOnly: "off",
  time: "2026-11-27 01:02:03+00",
};

/** Texts of results, of which `null` is not one that can be recorded. */
const RESULTS: Readonly<Record<string, readonly [text: string, output: unknown]>> = {
  "a key twice: the last one counts": [resultText('"status":"refused","status":"succeeded"'), "text"],
  "zero characters": [resultText('"output":"a\\u0000b"'), "a\0b"],
  "half a character": [resultText('"output":"\\ud800 x \\udc00"'), "\ud800 x \udc00"],
  "terminal commands": [
    resultText('"output":"\\u001b]0;title\\u0007\\u009b2J\\u202e"'),
    "\u001b]0;title\u0007\u009b2J\u202e",
  ],
  "a prototype": [
    resultText('"__proto__":{"status":"cached","isAdmin":true},"constructor":{"prototype":{"x":1}}'),
    "text",
  ],
  "infinite time": [resultText('"durationMs":1e999'), null],
  "the most time there is": [resultText('"durationMs":1.7976931348623157e308'), null],
  "negative time": [resultText('"durationMs":-1'), null],
  "a time that is no number": [resultText('"durationMs":NaN'), null],
  "memory of half a byte": [resultText('"memoryBytesPeak":0.5'), null],
  "an end after all time": [resultText('"endedAt":"+275760-09-13T00:00:00.001Z"'), null],
  "an end that is no time": [resultText('"endedAt":"\\u001b[2J"'), null],
  "an exit code with 400 digits": [resultText(`"exitCode":${"9".repeat(400)}`), null],
  "a code with a line feed": [resultText('"error":{"code":"A\\nB","message":"x"}'), null],
  "a status of the coordinator": [resultText('"status":"cached"'), null],
  "no value": ["", null],
  "a byte order mark": [`\ufeff${resultText("")}`, null],
};

function resultText(more: string): string {
  const { index: _, key: __, run: ___, attempt: ____, fields: _____, ...result } = settlementOf(0).result;
  const known = JSON.stringify(result).slice(1, -1);
  return `{${[known, more].filter((part) => part !== "").join(",")}}`;
}

describe("what a hostile machine says of its items", () => {
  it("is recorded as what it says, or refused, and keeps nothing else from being recorded", async () => {
    const names = Object.keys(RESULTS);
    fleet = await newFleet(names.length);
    const client = await attacker();
    const id = await told(client, "SELECT corral.machine_join($1, '{}', 1000, '0', 60000)", ["\u001b[2Jm\u202e\n"]);
    const tickets = names.map((_, n) => `t${n}`);
    await client.query("SELECT corral.machine_claim($1, $2, $3)", [id, [fleet], tickets]);
    for (const [n, what] of names.entries()) {
      const values = [id, fleet, n, RESULTS[what]?.[0], "\u001b[31m\u0085out", "\ufffe", "../../etc/passwd"];
      expect(await told(client, "SELECT corral.machine_deliver($1, $2, $3, 1, $4, $5, $6, $7, '{')", values)).toBe(
        "taken",
      );
    }
    const queue = await coordinator.queue(fleet);
    const found: Record<string, unknown> = {};
    const worker = { name: "w", output: "text" } as const;
    for (const delivered of await coordinator.work.deliveries(fleet, 1000)) {
      const checked = await deliveredResult(delivered, {}, worker, new SchemaChecks());
      const what = names[delivered.index] ?? "";
      found[what] = checked === null ? null : checked.result.output;
      if (checked === null) continue;
      const settled = await queue.settle(delivered.index, 1, { ...checked, cacheKey: null });
      expect(settled, what).toEqual({ ok: true });
      expect((await coordinator.item(fleet, delivered.key))?.result).toMatchObject({
        status: "succeeded",
        run: delivered.run,
      });
    }
    expect(found).toEqual(Object.fromEntries(names.map((what) => [what, RESULTS[what]?.[1]])));
    expect(({} as { isAdmin?: boolean }).isAdmin).toBeUndefined();
  });
});

describe("what a hostile machine sets for its role", () => {
  it("keeps no honest machine of the same role from its work, whatever it is", async () => {
    const client = await attacker();
    const { rows } = await client.query<{ name: string; values: string[] }>(`
      SELECT name, CASE vartype WHEN 'bool' THEN '{on,off}' WHEN 'enum' THEN enumvals WHEN 'string' THEN '{x}'
        ELSE ARRAY[min_val, CASE WHEN min_val = '0' OR min_val = '-1' THEN '1' ELSE boot_val END, max_val] END AS values
      FROM pg_settings WHERE context = 'user'
      UNION ALL VALUES ('role', ARRAY[current_user::text]), ('transaction_read_only', ARRAY['on']), ('search_path', '{public}'),
        ('DateStyle', '{"German, DMY"}'), ('TimeZone', '{Asia/Kathmandu}'), ('default_tablespace', '{pg_default}')`);
    expect(rows.length).toBeGreaterThan(100);
    const failed: string[] = [];
    const content = randomBytes(300);
    const superuser = await attacker("postgres");
    // All settings at once, each with its first value, then with its second, and so on.
    for (let n = 0; rows.some(({ values }) => values.length > n); n += 1) {
      for (const { name: setting, values } of rows)
        await client.query(`ALTER ROLE ${role} SET ${setting} = ${pg.escapeLiteral(values[n] ?? "")}`).catch(() => {});
      try {
        await using db = await connectServer(urlOf(role));
        const blobs = new PostgresBlobs(db);
        const digest = await putBytes(blobs, content);
        expect((await wholeBlob(blobs, digest, 1000)).equals(content)).toBe(true);
        await db.transaction(async (within) => {
          const [row] = await within.query(
            `SELECT current_user AS user, current_setting('transaction_isolation') AS level, $1::text[] AS list, 0.1::float8 AS x,
               current_setting('transaction_read_only') AS "isReadOnly", '2026-11-27 01:02:03+00'::timestamptz::text AS time`,
            [["a", null]],
          );
          expect(row).toEqual(AS_EVER);
        });
      } catch (error) {
        failed.push(`value ${n}: ${(error as Error).message}`);
      }
      // PostgreSQL 17 lets no other user reset all of them.
      await superuser.query(`ALTER ROLE ${role} RESET ALL`);
    }
    expect(failed).toEqual([]);
  });

  it("is reset by the script of `corral work --grants`, but for what a pooler needs", async () => {
    const client = await attacker();
    const set = (what: string) => client.query(`ALTER ROLE ${role} ${what}`);
    const kept = { search_path: "pg_catalog", enable_seqscan: "off", jit: "off" };
    for (const [setting, value] of Object.entries(kept)) await set(`SET ${setting} = ${value}`);
    await set("SET default_transaction_read_only = on");
    await set("SET transaction_read_only = on");
    await set(`IN DATABASE ${database} SET statement_timeout = 1`);
    await set("IN DATABASE postgres SET \"DateStyle\" = 'German'");
    await expect(asOwner.query(machineRoleScript(role, "0"))).rejects.toThrow(
      /the role \S+ has set \w+ for itself, and this user may not reset it: run this as a superuser, or with CREATEROLE/,
    );
    await asOwner.query("ROLLBACK").catch(() => {});
    const superuser = await attacker("postgres");
    await superuser.query(`ALTER ROLE ${role} SET temp_file_limit = 1000`);
    await superuser.query(machineRoleScript(role, "0"));
    const { rows } = await superuser.query(
      "SELECT pg_catalog.unnest(setconfig) AS one FROM pg_db_role_setting WHERE setrole = $1::regrole",
      [role],
    );
    expect(rows.map(({ one }) => one).toSorted()).toEqual(
      [
        "temp_file_limit=1000",
        "transaction_read_only=on",
        ...Object.entries(kept).map(([setting, value]) => `${setting}=${value}`),
      ].toSorted(),
    );
    await superuser.query(`ALTER ROLE ${role} RESET ALL`);
  });

  it("is named by the script if the script cannot take it: objects of its own, and all connections", async () => {
    const superuser = await attacker("postgres");
    await superuser.query(`CREATE SCHEMA of_machine AUTHORIZATION ${role}`);
    const warnings: string[] = [];
    superuser.on("notice", ({ message }) => warnings.push(message ?? ""));
    await superuser.query(`ALTER ROLE ${role} CONNECTION LIMIT -1`);
    await superuser.query(machineRoleScript(role, "0"));
    expect(warnings.join("\n")).toMatch(
      /may take all connections.*CONNECTION LIMIT 50[\s\S]*owns objects.*DROP OWNED BY/,
    );
    await superuser.query("DROP SCHEMA of_machine");
    await superuser.query(`ALTER ROLE ${role} CONNECTION LIMIT 50`);
  });
});

describe("what a hostile machine writes and rolls back", () => {
  it("is counted, and nothing more is written when it has had its share", async () => {
    fleet = await newFleet(1);
    const client = await attacker();
    const id = await joined(client);
    await client.query("SELECT corral.machine_claim($1, $2, '{t}')", [id, [fleet]]);
    const [{ used } = { used: "" }] = await asOwner.query<{ used: string }>(
      `SELECT last_value % 10000000000000 AS used FROM corral.written_by_${await told(client, "SELECT current_user::regrole::oid::text")}`,
    );
    await asOwner.query("UPDATE corral.limits SET bytes_per_hour = $1", [Number(used) + 400_000]);
    const text = "x".repeat(100_000);
    const calls: readonly (readonly [string, (round: number) => readonly unknown[]])[] = [
      ["SELECT corral.blob_put(encode(sha256($1), 'hex'), $1)", () => [randomBytes(100_000)]],
      ["SELECT corral.machine_deliver($1, $2, 0, 1, $3, null, null, null, '{}')", () => [id, fleet, text]],
      ["SELECT corral.machine_ask($1, $2, 0, 1, 0, $3)", () => [id, fleet, text]],
      [
        "SELECT corral.machine_join('m', $1, 1, '0', 1000)",
        () => [Array.from({ length: 100 }, () => "\u00e9".repeat(200))],
      ],
    ];
    const sizes = async () =>
      (
        await asOwner.query<{ size: number }>(
          "SELECT sum(pg_total_relation_size(oid))::float8 AS size FROM pg_class WHERE relnamespace = 'corral'::regnamespace AND relkind = 'r'",
        )
      )[0]?.size ?? 0;
    for (const [call, values] of calls) {
      await asOwner.query("SELECT setval($1::regclass, 1)", [
        `corral.written_by_${await told(client, "SELECT current_user::regrole::oid::text")}`,
      ]);
      await asOwner.query("UPDATE corral.limits SET bytes_per_hour = 400000");
      let refused = 0;
      let full = 0;
      for (let round = 0; round < 40; round += 1) {
        await client.query("BEGIN");
        const code = await client.query(call, [...values(round)]).then(
          () => "",
          (error: { code: string }) => error.code,
        );
        await client.query("ROLLBACK");
        if (code === "53400") refused += 1;
        else expect(code, call).toBe("");
        if (refused === 1) full = await sizes();
      }
      expect(refused, call).toBeGreaterThan(30);
      // Autovacuum may have made them smaller.
      expect(await sizes(), call).toBeLessThanOrEqual(full);
    }
    await asOwner.query("UPDATE corral.limits SET bytes_per_hour = DEFAULT");
  });
});

describe("limits of a machine", () => {
  it.each(["REPEATABLE READ", "SERIALIZABLE"])("cannot be passed by transactions that are %s", async (level) => {
    fleet = await newFleet(4);
    const client = await attacker();
    const id = await joined(client);
    const begin = async (): Promise<void> => void (await client.query(`BEGIN ISOLATION LEVEL ${level}`));
    for (const [text, values] of [
      ["SELECT corral.machine_join('m', '{}', 1, '0', 1000)", []],
      ["SELECT corral.machine_claim($1, $2, '{t}')", [id, [fleet]]],
      ["SELECT corral.machine_ask($1, $2, 0, 1, 0, '{}')", [id, fleet]],
    ] as const) {
      await begin();
      await expect(client.query(text, [...values])).rejects.toThrow(/READ COMMITTED/);
      await client.query("ROLLBACK");
    }
  });
});
