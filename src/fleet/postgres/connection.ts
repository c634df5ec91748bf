import { readFileSync } from "node:fs";
import { setTimeout as sleep } from "node:timers/promises";
import type pg from "pg";
import { textBeside } from "../../platform/text-beside.ts";
import { QueueError } from "../model/queue.ts";

/** A process whose lease has ended counts as dead. */
export const LEASE_MS = 15_000;
export const RENEW_MS = 3000;
/** A database that is away may stay away: then the lease ends by itself. */
const LEAVE_MS = 5000;
/** An item that a machine holds in an open transaction keeps nothing waiting, and is no other's: such transactions are looked for. */
const RENEWALS_BETWEEN_LOOKS = 5;
const HELD_MS = 30_000;

/** This process as an owner of fleets: others see by its lease that it lives. It begins when it is needed. */
export class OwnerLease implements AsyncDisposable {
  readonly #db: Connection;
  readonly #self: string;
  #begun: Promise<void> | null = null;
  #timer: NodeJS.Timeout | undefined;
  #isRenewing = false;
  #renewals = 0;

  constructor(db: Connection, self: string) {
    this.#db = db;
    this.#self = self;
  }

  async begin(): Promise<void> {
    this.#begun ??= this.#start();
    await this.#begun;
  }

  async #start(): Promise<void> {
    await this.#renew();
    // If it fails, the next one may succeed; until then others see the lease end.
    this.#timer = setInterval(() => void this.#renewAgain(), RENEW_MS).unref();
  }

  /** Each tries for a while: a second one beside it would take a connection from what waits for one. */
  async #renewAgain(): Promise<void> {
    if (this.#isRenewing) return;
    this.#isRenewing = true;
    await this.#renew().catch(() => {});
    this.#isRenewing = false;
    if (this.#renewals % RENEWALS_BETWEEN_LOOKS === 0) await this.#db.endHolders(HELD_MS).catch(() => {});
    this.#renewals += 1;
  }

  async #renew(): Promise<void> {
    await this.#db.query(
      `INSERT INTO corral.processes (id, is_machine, name, joined_at, seen_at, lease_until)
       SELECT $1, false, '', now, now, now + $2 FROM corral.now_ms() AS now
       ON CONFLICT (id) DO UPDATE SET seen_at = excluded.seen_at, lease_until = excluded.lease_until`,
      [this.#self, LEASE_MS],
      { withinMs: RENEW_MS },
    );
  }

  /** Fleets that it still owns can be taken over at once. */
  async [Symbol.asyncDispose](): Promise<void> {
    clearInterval(this.#timer);
    if (this.#begun === null) return;
    await this.#begun.catch(() => {});
    const leaving = this.#db.query("DELETE FROM corral.processes WHERE id = $1", [this.#self]).catch(() => {});
    const waited = new AbortController();
    await Promise.race([leaving, sleep(LEAVE_MS, undefined, { signal: waited.signal }).catch(() => {})]);
    waited.abort();
  }
}

const CHUNK = 5000;

/** Cancels a fleet and what waits in it. Returns the number of cancelled items. An item that is just being claimed is waited for. */
export async function cancelFleetItems({ db, now }: Scope, fleet: number, why: string): Promise<number> {
  // The state changes first, so that nothing is claimed between the chunks.
  await db.query(
    "UPDATE corral.fleets SET state = 'cancelled', why = $1, agreement = NULL WHERE id = $2 AND state IN ('running', 'paused')",
    [why, fleet],
  );
  const [row] = await db.query<{ state: string }>("SELECT state FROM corral.fleets WHERE id = $1", [fleet]);
  if (row === undefined) throw new QueueError("the fleet was removed from the queue");
  if (row.state !== "cancelled") return 0;
  for (let cancelled = 0; ; ) {
    const some = await db.transaction(
      async (within) => (await keepSome(within, fleet)) || (await cancelSome(within, fleet, now())),
    );
    if (some === 0) return cancelled;
    cancelled += some;
  }
}

async function cancelSome(db: Statements, fleet: number, nowMs: number | null): Promise<number> {
  const some = await db.query(
    `UPDATE corral.items SET state = 'done', status = 'cancelled', code = 'cancelled', duration_ms = 0,
       ended_at = coalesce($3::bigint, corral.now_ms())
     WHERE fleet = $1 AND position IN (
       SELECT position FROM corral.items WHERE fleet = $1 AND state = 'queued' LIMIT $2 FOR UPDATE)
     RETURNING position`,
    [fleet, CHUNK, nowMs],
  );
  if (some.length > 0) await tally(db, fleet, "cancelled", "cancelled", 0, some.length);
  return some.length;
}

/** Items that wait to be retried: their earlier results count again. */
async function keepSome(db: Statements, fleet: number): Promise<number> {
  const kept = await db.query<{ status: string; code: string; failed: number; count: number }>(
    `WITH kept AS (
       UPDATE corral.items SET state = 'done' WHERE fleet = $1 AND position IN (
         SELECT position FROM corral.items WHERE fleet = $1 AND state = 'queued' AND status IS NOT NULL LIMIT $2
         FOR UPDATE)
       RETURNING status, code, failed)
     SELECT status, code, failed, count(*)::int AS count FROM kept GROUP BY status, code, failed`,
    [fleet, CHUNK],
  );
  for (const { status, code, failed, count } of kept) await tally(db, fleet, status, code, failed, count);
  return kept.reduce((sum, { count }) => sum + count, 0);
}

export async function tally(
  db: Statements,
  fleet: number,
  status: string,
  code: string,
  failed: number,
  count: number,
): Promise<void> {
  await db.query(
    `INSERT INTO corral.tallies (fleet, status, code, failed, count) VALUES ($1, $2, $3, $4, $5)
     ON CONFLICT (fleet, status, code) DO UPDATE SET count = corral.tallies.count + excluded.count`,
    [fleet, status, code, failed, count],
  );
}

/** The roles of machines whose sessions this user may end: it is a member of them (`corral work --grants`). */
const ROLES = `
  SELECT coalesce(array_agg(r.oid::bigint), '{}') AS roles, (SELECT oid::bigint FROM pg_database WHERE datname = current_database()) AS here
  FROM pg_roles r
  WHERE pg_has_role(r.oid, 'USAGE') AND NOT pg_has_role(r.oid, current_user, 'MEMBER')
    AND has_function_privilege(r.oid, 'corral.machine_claim(text, text[], text[])', 'EXECUTE')`;

/** It reads no table that all databases share: to lock one takes room where there may be none. */
const END = textBeside(import.meta.url, "sql/end-sessions.sql");

/** Of one session. An honest one has some tens for a moment. */
const MOST_LOCKS = 1000;
/** When the server has no room for more locks: then fifty connections of a machine have no more than half of what it has by default. */
const FEWEST_LOCKS = 50;

/**
 * Ends sessions of machines that hold something of Corral's in a transaction for too long, that keep a transaction open for much longer, or
 * that hold an advisory lock or very many locks: all sessions of a server share one table of them. What an honest machine does is one
 * short statement. The limits of a session are its user's to change, so a coordinator has to look, also at what a machine does in another
 * database of the server.
 */
export class Holders {
  /** What was last known: while the server has no room for locks, it cannot be asked. */
  #known: { readonly roles: readonly number[]; readonly here: number } = { roles: [], here: 0 };

  /** Returns how many it ended. `heldMs`: for how long they may hold something of Corral's. */
  async end(db: Statements, heldMs: number, isCrowded = false): Promise<number> {
    const asked = db.query<{ roles: number[]; here: number }>(ROLES);
    const [row] = await (isCrowded ? asked.catch(() => []) : asked);
    this.#known = row ?? this.#known;
    const { roles, here } = this.#known;
    const most = isCrowded ? FEWEST_LOCKS : MOST_LOCKS;
    return (await db.query(END, [heldMs, most, roles, here])).length;
  }
}

/** Anything that takes statements: a connection, or one transaction of it. */
export interface Statements {
  /** `$1`, `$2`, … are the values. Names of tables begin with `corral.`, whatever the schema is called. */
  query<Row>(text: string, values?: readonly unknown[]): Promise<Row[]>;
}

/** Their columns are those that the statement names. */
export type Rows = readonly unknown[];

/** One statement of several that are sent together. */
export interface Statement {
  readonly text: string;
  readonly values: readonly unknown[];
}

export interface StatementWait {
  /** After that the connection counts as lost: a network that carries nothing may also report nothing. */
  readonly withinMs?: number;
  /** Called each time that there is a connection, and the statement is sent. */
  readonly onSent?: () => void;
}

/**
 * A PostgreSQL database. A statement whose connection was lost is tried again for a while, so each must be one that can be executed
 * twice; a transaction is passed `again`, since an earlier try may have been committed already.
 */
export interface Connection extends Statements, AsyncDisposable {
  query<Row>(text: string, values?: readonly unknown[], patience?: StatementWait): Promise<Row[]>;
  /** Commits all of what `work` does, or nothing. `again`: an earlier try may have been committed. */
  transaction<T>(work: (within: Statements, again: boolean) => Promise<T>): Promise<T>;
  /**
   * Commits all of these, in their order, or nothing, in one round trip, and returns the rows of each. The server keeps their plans, so
   * there may be only a few texts. `again`: an earlier try may have been committed.
   */
  together(statements: (again: boolean) => readonly Statement[]): Promise<readonly Rows[]>;
  /** Calls `heard` for each notification, and when some may have been missed. It never rejects. */
  listen(heard: () => void): Promise<void>;
  /** Ends sessions of machines that hold for longer than this what others need, and returns how many. */
  endHolders(heldMs: number): Promise<number>;
}

/** The name of the schema, and of the channel of its notifications. */
export const SCHEMA = "corral";

/** Makes the texts of statements those of another schema. */
export function schemaTexts(schema: string): (text: string) => string {
  if (!/^[a-z_][a-z0-9_]{0,40}$/.test(schema)) throw new QueueError(`${JSON.stringify(schema)} is no name of a schema`);
  if (schema === SCHEMA) return (text) => text;
  const names = new RegExp(`\\b${SCHEMA}(?=\\.)|(?<=SCHEMA (?:IF NOT EXISTS )?)${SCHEMA}\\b`, "g");
  return (text) => text.replaceAll(names, schema);
}

/** PostgreSQL's text has no zero character. Where JSON has one, it is escaped and stays. */
export function storable(value: unknown): unknown {
  if (typeof value === "string") return value.includes("\0") ? value.replaceAll("\0", "\u2400") : value;
  if (Array.isArray(value)) return value.map(storable);
  return value;
}

/** The fleets of one project in a database, as one process sees them. */
export interface Scope {
  readonly db: Connection;
  /** Of the project and its state directory, in hexadecimal: two never see fleets of each other. */
  readonly project: string;
  /** Identifies this open store of this process among all past and future ones: the owner of what it runs. */
  readonly self: string;
  /** True if this owner has certainly ended. */
  readonly isDead: (owner: string) => boolean;
  /** True if this owner certainly runs, even if its lease has ended. */
  readonly isAlive: (owner: string) => boolean;
  /** Only tests say what time it is; null: the database's clock counts. */
  readonly now: () => number | null;
}

/** Modes of TLS. With `prefer` and `allow` an attacker in the network could switch TLS off: they are refused. */
const MODES = ["disable", "require", "verify-ca", "verify-full"];
const MAX_PASSWORD = 1000;

/**
 * What the driver needs, from an address like `postgres://user:password@host:5432/database?sslmode=verify-full`. TLS always
 * verifies the server's certificate; `sslrootcert` names the file of its authority. Without `sslmode` another host needs TLS.
 *
 * @throws QueueError if it is no such address
 */
export function settingsOf(url: string): pg.ClientConfig {
  const parsed = parsedUrl(url);
  const { searchParams } = parsed;
  const mode = searchParams.get("sslmode");
  const rootCert = searchParams.get("sslrootcert");
  const socket = searchParams.get("host");
  for (const name of searchParams.keys())
    if (!["sslmode", "sslrootcert", "host", "passwordfile"].includes(name))
      throw new QueueError(
        `the address of the queue has an unknown parameter ${name}. Known: host, passwordfile, sslmode, sslrootcert`,
      );
  if (mode !== null && !MODES.includes(mode))
    throw new QueueError(`sslmode of the queue is ${mode}. Use one of ${MODES.join(", ")}`);
  const host = socket ?? (decodeURIComponent(parsed.hostname.replace(/^\[|\]$/g, "")) || "localhost");
  return {
    host,
    ...(parsed.port === "" ? {} : { port: Number(parsed.port) }),
    ...(parsed.username === "" ? {} : { user: decodeURIComponent(parsed.username) }),
    ...passwordOf(parsed),
    ...(parsed.pathname.length > 1 ? { database: decodeURIComponent(parsed.pathname.slice(1)) } : {}),
    ssl: tlsOf(mode ?? (isThisMachine(host) && rootCert === null ? "disable" : "verify-full"), rootCert),
  };
}

/** No other machine can listen in: a socket, or a loopback address. */
function isThisMachine(host: string): boolean {
  return host.startsWith("/") || /^(localhost|127(\.\d+){3}|::1)$/i.test(host);
}

/** Whether what goes to this queue can be read and changed on its way. */
export function isOpenToOthers(url: string): boolean {
  const { host = "", ssl } = settingsOf(url);
  return ssl === false && !isThisMachine(host);
}

function tlsOf(mode: string, rootCert: string | null): pg.ClientConfig["ssl"] {
  if (mode === "disable") return false;
  const ca = rootCert === null ? {} : { ca: readCertificate(rootCert) };
  // As libpq has it, `verify-ca` accepts any name that the authority signed.
  return { rejectUnauthorized: true, ...ca, ...(mode === "verify-ca" ? { checkServerIdentity: () => undefined } : {}) };
}

/** Of the address itself, or of the file that it names, without its last line feed. */
function passwordOf({ password, searchParams }: URL): { readonly password?: string } {
  const file = searchParams.get("passwordfile");
  if (file === null) return password === "" ? {} : { password: decodeURIComponent(password) };
  if (password !== "")
    throw new QueueError("the address of the queue has a password and a passwordfile: use one of them");
  let text: string;
  try {
    text = readFileSync(file, "utf8").replace(/\r?\n$/, "");
  } catch (cause) {
    throw new QueueError(`passwordfile of the queue cannot be read: ${(cause as Error).message}`, { cause });
  }
  if (text !== "" && text.length <= MAX_PASSWORD) return { password: text };
  throw new QueueError(`passwordfile of the queue must have one line of 1 to ${MAX_PASSWORD} characters: ${file}`);
}

function readCertificate(path: string): string {
  try {
    return readFileSync(path, "utf8");
  } catch (cause) {
    throw new QueueError(`sslrootcert of the queue cannot be read: ${(cause as Error).message}`, { cause });
  }
}

/** The server as messages name it: without user and password. */
export function serverText(url: string): string {
  const { hostname, port, pathname, searchParams } = parsedUrl(url);
  const host = searchParams.get("host") ?? (decodeURIComponent(hostname) || "localhost");
  return `${host}:${port || "5432"}${pathname}`;
}

/** The text is in no message: it may have a password. */
function parsedUrl(url: string): URL {
  const wrong = "the address of the queue is no `postgres://user@host:port/database`";
  if (!URL.canParse(url)) throw new QueueError(wrong);
  const parsed = new URL(url);
  if (!["postgres:", "postgresql:"].includes(parsed.protocol)) throw new QueueError(wrong);
  return parsed;
}
