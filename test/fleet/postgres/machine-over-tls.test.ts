import { execFileSync, spawnSync } from "node:child_process";
import { randomBytes } from "node:crypto";
import { writeFileSync } from "node:fs";
import { type AddressInfo, createConnection, createServer } from "node:net";
import { join } from "node:path";
import { afterAll, beforeAll, describe, expect, inject, it } from "vitest";
import { blobDigest, putBytes, wholeBlob } from "../../../src/blobs/blob.ts";
import { openFleetStore } from "../../../src/fleet/fleet-stores.ts";
import type { FleetStore } from "../../../src/fleet/model/store.ts";
import { PERSISTENCE } from "../../../src/fleet/postgres/lost-connection.ts";
import { machineRoleScript, stepsOf } from "../../../src/fleet/postgres/migrate.ts";
import { examineQueue } from "../../../src/fleet/postgres/postgres-store.ts";
import { connectServer } from "../../../src/fleet/postgres/server.ts";
import { openWorkPlace } from "../../../src/operations/run-fleet.ts";
import { sha256 } from "../../../src/platform/sha256.ts";
import { temporaryFolder } from "../../files/temporary-folder.ts";
import { attempts, items, noCollisions, SPEC, settlementOf } from "../journal/journal-fixture.ts";
import { serverPrograms } from "./server-fixture.ts";

const name = (what: string): string => `${what}_${randomBytes(4).toString("hex")}`;
const [database, owner, role] = [name("fleets"), name("owner"), name("machine")];
const PASSWORD = "a password: 100%?";
const AGREEMENT = { declarations: {}, images: {}, trees: {} };
const MACHINE = { name: "m", labels: [], slots: 1, version: "0" };

const folder = temporaryFolder();
const { port, authority } = inject("postgresTls") ?? { port: 0, authority: "" };
/** The superuser, on the socket. */
const superUrl = (inject("postgres") ?? "").replace("/postgres?", `/${database}?`);
const urlOf = (
  user: string,
  { password = PASSWORD, host = "localhost", tls = `verify-full&sslrootcert=${authority}` } = {},
) =>
  `postgres://${user}:${encodeURIComponent(password)}@${host}:${port}/${database}${tls === "" ? "" : `?sslmode=${tls}`}`;

let coordinator: FleetStore;

/** Runs SQL as a user does with what `corral work --grants` prints. */
function psql(url: string, script: string): string {
  const program = join(serverPrograms() ?? "", "psql");
  const ran = spawnSync(program, ["-X", "-q", "-v", "ON_ERROR_STOP=1", url], { input: script, encoding: "utf8" });
  return ran.status === 0 ? "" : ran.stderr;
}

const opened = (url: string) => openWorkPlace(join(folder.path, "machine"), folder.path, { CORRAL_QUEUE: url });
const joined = async (url = urlOf(role)) => {
  await using place = await opened(url);
  await using _ = await place.work.join(MACHINE);
};

beforeAll(async () => {
  await using server = await connectServer(inject("postgres") ?? "");
  await server.query(`CREATE ROLE ${owner} LOGIN PASSWORD '${PASSWORD}'`);
  await server.query(`CREATE DATABASE ${database} OWNER ${owner}`);
  await server.query(`REVOKE CONNECT ON DATABASE ${database} FROM PUBLIC`);
  coordinator = await openFleetStore(join(folder.path, "owner"), folder.path, { CORRAL_QUEUE: urlOf(owner) });
  // The first time the role is made, which the owner of the tables may not.
  expect(psql(superUrl, machineRoleScript(role, "1"))).toBe("");
  expect(psql(superUrl, `ALTER ROLE ${role} PASSWORD '${PASSWORD}'`)).toBe("");
});
afterAll(async () => {
  await coordinator[Symbol.asyncDispose]();
  await using server = await connectServer(inject("postgres") ?? "");
  await server.query(`DROP DATABASE ${database} WITH (FORCE)`);
  folder.remove();
});

describe("a machine with the role that `corral work --grants` makes", () => {
  it("does everything that it has to, over TLS and with a password", async () => {
    const work = coordinator.work;
    if (work === null) throw new Error("machines cannot reach it");
    const fleet = await coordinator.create({ ...SPEC, machines: { needs: [], priority: 0, weight: 1 } });
    await coordinator.load(fleet, items(2), noCollisions);
    await work.offer(fleet, AGREEMENT);
    await putBytes(await work.blobs(), Buffer.from("of the coordinator"));

    await using place = await opened(urlOf(role));
    await using member = await place.work.join(MACHINE);
    expect(await member.offers()).toMatchObject([{ fleet, hasMore: true }]);
    expect(await member.claim([fleet], 2, attempts())).toHaveLength(2);
    expect((await wholeBlob(place.blobs, blobDigest(Buffer.from("of the coordinator")), 100)).toString()).toBe(
      "of the coordinator",
    );
    const changeset = await putBytes(place.blobs, Buffer.from("of the machine"));
    // Again: it relies on what is there.
    await place.blobs.put({ digest: changeset, bytes: 14 }, [Buffer.from("of the machine")] as never);
    const delivery = { result: settlementOf(0).result, streams: null, changeset, more: null };
    expect(await member.deliver(fleet, 0, 1, delivery)).toEqual({ ok: true });
    expect(await member.giveBack(fleet, 1, 1, 0)).toEqual({ ok: true });
    expect(await member.withdrawn()).toEqual([]);
    await member.refuses(fleet, "a reason");
    await place.work.wake(1, new AbortController().signal);
    expect(await work.deliveries(fleet, 9)).toMatchObject([{ index: 0, changeset }]);
    expect(await work.machines()).toMatchObject([{ name: "m" }]);
  });

  it("says what it may not do, and who may", async () => {
    await using store = await openFleetStore(join(folder.path, "machine"), folder.path, { CORRAL_QUEUE: urlOf(role) });
    await expect(store.list()).rejects.toThrow(
      /does not allow this: permission denied for table fleets\. Use the address of the owner/,
    );
  });
});

describe("the script of `corral work --grants`", () => {
  const sql = (text: string): void => expect(psql(superUrl, text)).toBe("");

  it("gives an existing role what it lacks, as the owner of the tables, and takes what is too much", async () => {
    sql(`REVOKE EXECUTE ON FUNCTION corral.machine_leave(text) FROM ${role}; GRANT ALL ON corral.fleets TO ${role};
      REVOKE EXECUTE ON FUNCTION corral.blob_put(text, bytea) FROM ${role}; GRANT DELETE ON corral.blobs TO ${role};`);
    await expect(joined()).rejects.toThrow(
      "This database user lacks rights that machines need: EXECUTE on corral.machine_leave, EXECUTE on corral.blob_put. " +
        "Run `corral work --grants ROLE`",
    );
    expect(psql(urlOf(owner), machineRoleScript(role, "1"))).toBe("");
    await joined();
    await using asRole = await connectServer(urlOf(role));
    await expect(asRole.query("SELECT * FROM corral.fleets")).rejects.toThrow(/permission denied/);
    await expect(asRole.query("DELETE FROM corral.blobs")).rejects.toThrow(/permission denied/);
  });

  it("says what makes the tables if they are not there yet", () => {
    const another = superUrl.replace(`/${database}`, "/template1");
    const [, refusal] = /ERROR: +(.*)/.exec(psql(another, machineRoleScript(name("early"), "1"))) ?? [];
    expect(refusal).toMatch(/^Corral's tables are not there yet: run `corral fleet ls`/);
  });

  it("changes nothing for a role with all rights: the owner, its members, a superuser, and who can become one", async () => {
    const [member, maker, writer] = [name("member"), name("maker"), name("writer")];
    sql(`CREATE ROLE ${member} NOINHERIT IN ROLE ${owner}; CREATE ROLE ${maker} CREATEROLE;
      CREATE ROLE ${writer} IN ROLE pg_write_server_files`);
    for (const wrong of [owner, member, maker, writer, "postgres"])
      expect(psql(superUrl, machineRoleScript(wrong, "1"))).toMatch(/has, or can get, rights that no machine may have/);
    expect((await coordinator.list()).length).toBe(1);
    sql(`DROP ROLE ${member}; DROP ROLE ${maker}; DROP ROLE ${writer}`);
  });

  it("changes nothing for a role with further rights that it cannot take: of its groups, or of all users", async () => {
    const [reader, group, member] = [name("reader"), name("group"), name("member")];
    sql(`CREATE ROLE ${reader} NOINHERIT IN ROLE pg_read_all_data; CREATE ROLE ${group}; CREATE ROLE ${member} IN ROLE ${group};
      GRANT USAGE ON SCHEMA corral TO ${group}; GRANT UPDATE (state) ON corral.items TO ${group};
      GRANT EXECUTE ON FUNCTION corral.offered(text) TO ${group}`);
    const refusal = (of: string): string => psql(superUrl, machineRoleScript(of, "1"));
    expect(refusal(reader)).toMatch(/has more rights than machines need.*SELECT on corral\.fleets/);
    expect(refusal(reader)).not.toMatch(/(INSERT|UPDATE|DELETE|EXECUTE) on|on corral\.version/);
    expect(refusal(member)).toMatch(/: EXECUTE on corral\.offered\(text\), UPDATE on corral\.items\. Use a new role/);
    expect(psql(superUrl, `SET ROLE ${member}; SELECT corral.machine_leave('x')`)).toMatch(/permission denied/);
    sql("GRANT INSERT ON corral.results TO PUBLIC");
    expect(refusal(role)).toMatch(/: INSERT on corral\.results\. Use a new role/);
    sql("REVOKE INSERT ON corral.results FROM PUBLIC");
    expect(refusal(role)).toBe("");
    for (const made of [reader, member]) sql(`DROP ROLE ${made}`);
    sql(`DROP OWNED BY ${group}; DROP ROLE ${group}`);
  });

  it.each(["", "a b", 'x"; DROP TABLE y; --', "a'b", "pg_monitor", "PUBLIC", "x".repeat(64), "1a", "a;b"])(
    "is made for no such name: %j",
    (wrong) => {
      expect(() => machineRoleScript(wrong, "1")).toThrow(/role|keeps this name/);
    },
  );
});

describe("`corral doctor`", () => {
  it("says what the administrator of the database should change", async () => {
    expect(await examineQueue(urlOf(role))).toEqual({
      detail: expect.stringMatching(/^PostgreSQL 1\d.*, over TLS, with Corral's tables$/),
      warnings: [],
    });
    expect(psql(urlOf(role), `ALTER ROLE ${role} SET statement_timeout = 1`)).toBe("");
    expect(psql(superUrl, `ALTER ROLE ${role} CONNECTION LIMIT -1`)).toBe("");
    expect((await examineQueue(urlOf(role))).warnings).toEqual([
      expect.stringMatching(/^this user has settings of its own \(statement_timeout\)/),
      expect.stringMatching(/^machines may take all connections.*CONNECTION LIMIT 50/),
    ]);
    expect(psql(superUrl, `ALTER ROLE ${role} CONNECTION LIMIT 50; ALTER ROLE ${role} RESET ALL`)).toBe("");
  });
});

describe("a machine of another version", () => {
  it.each([
    [
      2,
      /^The queue has version 2, this Corral needs \d+, and this database user may not change tables\. Run this version once/,
    ],
    [99, /^The queue has version 99, but this Corral supports only \d+\. Use the newer Corral/],
  ])("says so, with tables of version %d", async (version, said) => {
    await using asOwner = await connectServer(urlOf(owner));
    const [was] = await asOwner.query<{ version: number; steps: string }>("SELECT version, steps FROM corral.version");
    const set = "UPDATE corral.version SET version = $1, steps = $2";
    await asOwner.query(set, [version, stepsOf(version)]);
    await expect(joined()).rejects.toThrow(said);
    await asOwner.query(set, [was?.version, was?.steps]);
  });

  it.each([
    ["the same version", 0],
    ["an older version", 1],
  ])("that was not released says so, to its owner too, with tables of %s", async (_, before) => {
    await using asOwner = await connectServer(urlOf(owner));
    const [was] = await asOwner.query<{ version: number; steps: string }>("SELECT version, steps FROM corral.version");
    const set = "UPDATE corral.version SET version = $1, steps = $2";
    await asOwner.query(set, [(was?.version ?? 0) - before, sha256("other steps")]);
    for (const url of [urlOf(role), urlOf(owner)])
      await expect(joined(url)).rejects.toThrow(/of a Corral that was not released.*DROP SCHEMA corral CASCADE/);
    await asOwner.query(set, [was?.version, was?.steps]);
  });
});

describe("a connection that is not safe, or not allowed", () => {
  const refused = async (url: string, said: RegExp) => {
    const error = await joined(url).then(
      () => new Error("it connected"),
      (failure: Error) => failure,
    );
    expect(error.message).toMatch(said);
    expect(error.message).not.toContain(PASSWORD);
  };

  it("is refused with an authority that did not sign the certificate", async () => {
    const other = join(folder.path, "other.pem");
    const args =
      "req -x509 -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes -days 2 -subj /CN=other -keyout other.key";
    execFileSync("openssl", [...args.split(" "), "-out", other], { cwd: folder.path, stdio: "ignore" });
    await refused(
      urlOf(role, { tls: `verify-full&sslrootcert=${other}` }),
      /TLS connection .* failed: .*sslrootcert=FILE/,
    );
    writeFileSync(other, "no certificate");
    await refused(urlOf(role, { tls: `verify-full&sslrootcert=${other}` }), /TLS connection .* failed/);
    // The authorities of the system did not sign it either.
    await refused(urlOf(role, { tls: "verify-full" }), /TLS connection .* failed: .*sslrootcert=FILE/);
  });

  it("is refused under a name or an address that the certificate does not have", async () => {
    const host = "127.0.0.1";
    await refused(
      urlOf(role, { host }),
      /TLS connection .* failed: .*Use the name of the server that its certificate has/,
    );
    await joined(urlOf(role, { host, tls: `verify-ca&sslrootcert=${authority}` }));
  });

  it("is refused by a server that wants TLS, and to one that has none", async () => {
    await refused(urlOf(role, { tls: "" }), /no encryption\. It wants TLS: add `sslmode=verify-full`/);
    await refused(`${superUrl}&sslmode=verify-full`, /does not support SSL connections\. Switch TLS on in the server/);
  });

  it.each([
    ["says that it has no TLS", "N", /does not support SSL connections/],
    [
      "sends more than its answer, which would be read as if it came over TLS",
      "SE",
      /error establishing an SSL connection/,
    ],
  ])("is refused by a server that %s, and gets no name and no password", async (_, answer, said) => {
    const got: Buffer[] = [];
    await using server = createServer((client) => {
      client.on("error", () => {}).on("data", (bytes) => got.push(bytes));
      client.once("data", () => client.write(answer));
    });
    await new Promise<void>((resolve) => server.listen(0, "127.0.0.1", resolve));
    const { port: at } = server.address() as AddressInfo;
    const url = `postgres://${role}:${PASSWORD.replace(/\W/g, "")}@127.0.0.1:${at}/x?sslmode=verify-full`;
    await expect(connectServer(url)).rejects.toThrow(said);
    // The request for TLS, and nothing more.
    expect(Buffer.concat(got).toString("hex")).toBe("0000000804d2162f");
  });

  it("is refused by a server in which a machine could take itself from the coordinator's reach", async () => {
    const { searchParams } = new URL(superUrl);
    const path = join(searchParams.get("host") ?? "", `.s.PGSQL.${port}`);
    await using older = createServer((client) => {
      const to = createConnection(path);
      client.pipe(to);
      to.on("data", (bytes) => {
        const text = bytes.toString("latin1").replace(/(?<=server_version\0)\d\d/, "14");
        client.write(Buffer.from(text, "latin1"));
      });
      for (const socket of [client, to]) socket.on("error", () => {});
    });
    await new Promise<void>((resolve) => older.listen(0, "127.0.0.1", resolve));
    const { port: at } = older.address() as AddressInfo;
    await expect(connectServer(`postgres://postgres@127.0.0.1:${at}/postgres`)).rejects.toThrow(
      /^PostgreSQL at 127\.0\.0\.1:\d+\/postgres is older than version 15.*Use a newer server\.$/,
    );
  });

  it.each([
    ["over TLS", () => urlOf(owner)],
    ["on the socket", () => superUrl],
  ])("is cut %s when an answer has no end, in bytes or in rows, and is not asked again", async (_, url) => {
    await using db = await connectServer(url(), undefined, { ...PERSISTENCE, maxAnswerBytes: 1024 ** 2 });
    const said = "the server sends an answer of more than 1 MiB";
    await expect(db.query("SELECT repeat('x', 2000000)")).rejects.toThrow(said);
    await expect(db.query("SELECT FROM generate_series(1, 20000)")).rejects.toThrow(said);
    // Each answer counts alone.
    for (let asked = 0; asked < 5; asked += 1)
      expect(await db.query("SELECT length(repeat('x', 500000)) AS n, repeat('x', 500000) AS x")).toMatchObject([
        { n: 500_000 },
      ]);
  });

  it("is refused with a password that is wrong or has expired", async () => {
    const said = /refuses the connection: password authentication failed .*has expired is refused in the same words/;
    await refused(urlOf(role, { password: "another" }), said);
    expect(psql(superUrl, `ALTER ROLE ${role} VALID UNTIL '2001-01-01'`)).toBe("");
    await refused(urlOf(role), said);
    expect(psql(superUrl, `ALTER ROLE ${role} VALID UNTIL 'infinity'`)).toBe("");
    await joined();
  });
});
