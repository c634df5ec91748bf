import { setTimeout as sleep } from "node:timers/promises";
import type pg from "pg";
import { sha256 } from "../../platform/sha256.ts";
import { QueueError } from "../model/queue-error.ts";
import {
  type Connection,
  type Patience,
  type Rows,
  SCHEMA,
  type Statement,
  type Statements,
  schemaTexts,
  storable,
} from "./connection.ts";
import { explainedError } from "./explained-error.ts";
import { END_HOLDERS } from "./held-locks.ts";
import { isHeldUp, isPassing, PERSISTENCE, type Persistence, Retries } from "./lost-connection.ts";
import { type OpenClients, openClients, streamOf } from "./open-clients.ts";
import { placeOf, settingsOf } from "./queue-url.ts";

/** Statements at the same time: one writes, others read lists. */
const MAX_CONNECTIONS = 4;
const CONNECT_MS = 10_000;
/** A statement that takes longer is ended by the server: nothing here takes so long. */
const STATEMENT_MS = 120_000;
/** Then the connection counts as lost: a network that carries nothing would be noticed after a quarter of an hour. */
const ANSWER_MS = STATEMENT_MS + 10_000;
const IDLE_MS = 30_000;
const HOLD_MS = 1000;
/** A network that carries nothing carries no goodbye either: then connections are cut. */
const CLOSE_MS = 3000;
/** Before it listens again after the connection was lost. */
const LISTEN_PAUSE_MS = 1000;

/** Functions and operators that other users made are never meant, whatever schemas they may write to. */
const OWN_NAMES_ALONE = "-c search_path=pg_catalog,pg_temp";
/** A plan that was made while a table was empty is used when it is large (docs/architecture.md, fact: plans-without-statistics). */
const INDEXES_ALONE = "-c enable_seqscan=off -c jit=off";
const OWN_NAMES = new Set(["pg_catalog", "pg_catalog,pg_temp"]);

function otherNames(place: string): string {
  return (
    `PostgreSQL at ${place} ignores the search_path that Corral asks for, so functions of other users could run with this user's rights. ` +
    "A pooler may cause it: as an administrator, run `ALTER ROLE … SET search_path = pg_catalog` for the user of the queue."
  );
}

/** Connects to a PostgreSQL server. @throws QueueError if it does not answer, or refuses */
export async function connectServer(
  url: string,
  schema = SCHEMA,
  persistence: Persistence = PERSISTENCE,
): Promise<Connection> {
  const texts = schemaTexts(schema);
  const settings = settingsOf(url);
  const { default: driver } = await import("pg");
  const types = new driver.TypeOverrides();
  types.setTypeParser(driver.types.builtins.INT8, Number);
  const options: pg.PoolConfig = {
    ...settings,
    types,
    application_name: "corral",
    keepAlive: true,
    connectionTimeoutMillis: CONNECT_MS,
    statement_timeout: STATEMENT_MS,
    query_timeout: ANSWER_MS,
    lock_timeout: persistence.lockMs,
    options: `${OWN_NAMES_ALONE} ${INDEXES_ALONE}`,
    // Several statements are in one round trip, if the caller does not wait between them.
    pipeline: true,
  };
  const clients = openClients(driver, options);
  const { Client } = clients;
  const bounds = { max: MAX_CONNECTIONS, idleTimeoutMillis: IDLE_MS, allowExitOnIdle: true };
  const pool = new driver.Pool({ ...options, ...bounds, Client });
  // An idle connection that is lost is replaced when one is needed.
  pool.on("error", () => {});
  const server = new Server(pool, clients, texts, { place: placeOf(url), persistence });
  try {
    const { rows } = await pool.query<{ path: string }>("SELECT current_setting('search_path') AS path");
    // A pooler may leave out what a connection asks for.
    if (!OWN_NAMES.has(rows[0]?.path.replaceAll(" ", "") ?? "")) throw new QueueError(otherNames(placeOf(url)));
    return server;
  } catch (error) {
    await server[Symbol.asyncDispose]();
    throw server.explained(error);
  }
}

/** The plan is on another connection, or another client has made it on this one. */
function hasLostPlan(error: unknown): boolean {
  return ["26000", "42P05"].includes((error as { code?: string }).code ?? "");
}

class Server implements Connection {
  readonly #pool: pg.Pool;
  readonly #clients: OpenClients;
  readonly #texts: (text: string) => string;
  readonly #place: string;
  readonly #retries: Retries;
  readonly #lockMs: number;
  /** By the text of the statement: its name on the server and its text there. */
  readonly #plans = new Map<string, { readonly name: string; readonly text: string }>();
  /** False behind a pooler that gives each transaction another connection, and does not know of plans. */
  #keepsPlans = true;
  #listener: pg.Client | null = null;
  #isClosed = false;

  constructor(
    pool: pg.Pool,
    clients: OpenClients,
    texts: (text: string) => string,
    { place, persistence }: { readonly place: string; readonly persistence: Persistence },
  ) {
    this.#pool = pool;
    this.#clients = clients;
    this.#texts = texts;
    this.#place = place;
    this.#lockMs = persistence.lockMs;
    this.#retries = new Retries(persistence, (error) => (this.explained(error) as Error).message);
  }

  async query<Row>(text: string, values: readonly unknown[] = [], patience: Patience = {}): Promise<Row[]> {
    return await this.#persistently(
      async () =>
        await this.#withClient(async (client) => {
          patience.onSent?.();
          return await this.#ask<Row>(client, text, values, patience.withinMs);
        }),
    );
  }

  async transaction<T>(work: (within: Statements, again: boolean) => Promise<T>): Promise<T> {
    return await this.#persistently(
      async (again) =>
        await this.#withClient(async (client) => {
          await client.query("BEGIN");
          const value = await work({ query: (text, values = []) => this.#ask(client, text, values) }, again);
          await client.query("COMMIT");
          return value;
        }),
    );
  }

  /** A connection outside of a transaction; if `work` fails, its transaction is rolled back. */
  async #withClient<T>(work: (client: pg.PoolClient) => Promise<T>): Promise<T> {
    const client = await this.#pool.connect();
    // Otherwise a connection that is lost between two statements would end the process.
    const onError = (): void => {};
    client.on("error", onError);
    let broken: Error | undefined;
    try {
      return await work(client);
    } catch (error) {
      if (isPassing(error)) broken = error as Error;
      else await client.query("ROLLBACK").catch((failure: Error) => (broken = failure));
      throw error;
    } finally {
      client.off("error", onError);
      client.release(broken);
    }
  }

  async together(statements: (again: boolean) => readonly Statement[]): Promise<readonly Rows[]> {
    return await this.#persistently(async (again) => {
      const all = statements(again);
      try {
        return await this.#withClient((client) => this.#sendTogether(client, all));
      } catch (error) {
        if (!this.#keepsPlans || !hasLostPlan(error)) throw error;
        // Nothing was committed.
        this.#keepsPlans = false;
        return await this.#withClient((client) => this.#sendTogether(client, all));
      }
    });
  }

  async #sendTogether(client: pg.PoolClient, statements: readonly Statement[]): Promise<readonly Rows[]> {
    const ask = ({ text, values }: Statement) => client.query({ ...this.#planned(text), values: values.map(storable) });
    const [first, ...others] = statements;
    if (first === undefined) return [];
    // One alone is a transaction already.
    if (others.length === 0) return [(await ask(first)).rows];
    const sent = [client.query("BEGIN"), ...statements.map(ask), client.query("COMMIT")];
    // If one fails, the server refuses those after it, and its COMMIT changes nothing.
    const answers = await Promise.allSettled(sent);
    const failed = answers.find(({ status }) => status === "rejected");
    if (failed?.status === "rejected") throw failed.reason;
    return answers.slice(1, -1).map((answer) => (answer.status === "fulfilled" ? answer.value.rows : []));
  }

  async listen(heard: () => void): Promise<void> {
    if (this.#isClosed) return;
    const client = this.#clients.make();
    this.#listener = client;
    let isOver = false;
    const again = (): void => {
      if (isOver) return;
      isOver = true;
      void client.end().catch(() => {});
      heard();
      void sleep(LISTEN_PAUSE_MS, undefined, { ref: false }).then(() => this.listen(heard));
    };
    client.on("error", again).on("end", again).on("notification", heard);
    try {
      await client.connect();
      await client.query(`LISTEN ${SCHEMA}`);
      streamOf(client).unref?.();
    } catch {
      again();
    }
  }

  explained(error: unknown): unknown {
    return explainedError(error, this.#place);
  }

  async [Symbol.asyncDispose](): Promise<void> {
    if (this.#isClosed) return;
    this.#isClosed = true;
    // Connections without work do not keep the process alive, and it must not end while they are being closed.
    const hold = setInterval(() => {}, HOLD_MS);
    const cutting = setTimeout(() => this.#clients.destroy(), CLOSE_MS);
    try {
      this.#listener?.removeAllListeners("end");
      await this.#listener?.end().catch(() => {});
      await this.#pool.end();
    } finally {
      clearInterval(hold);
      // What keeps the process alive longer is cut then.
      cutting.unref();
    }
  }

  async #ask<Row>(
    to: Pick<pg.ClientBase, "query">,
    text: string,
    values: readonly unknown[],
    withinMs = ANSWER_MS,
  ): Promise<Row[]> {
    // The driver's types do not know that a single statement may have a time of its own.
    const limit: object = { query_timeout: withinMs };
    const { rows } = await to.query({ text: this.#texts(text), values: values.map(storable), ...limit });
    return rows as Row[];
  }

  /** What waited for a lock may have waited for a machine that holds it on purpose. */
  async #freed(error: unknown): Promise<never> {
    if (isHeldUp(error))
      await this.#withClient((client) => this.#ask(client, END_HOLDERS, [this.#lockMs])).catch(() => {});
    throw error;
  }

  #planned(text: string): { readonly text: string; readonly name?: string } {
    let planned = this.#plans.get(text);
    if (planned === undefined) {
      const shown = this.#texts(text);
      planned = { text: shown, name: `corral_${sha256(shown).slice(0, 16)}` };
      this.#plans.set(text, planned);
    }
    return this.#keepsPlans ? planned : { text: planned.text };
  }

  async #persistently<T>(attempt: (again: boolean) => Promise<T>): Promise<T> {
    if (this.#isClosed) throw new QueueError("the store of fleets is closed");
    try {
      return await this.#retries.run(
        async (again) => await attempt(again).catch((error: unknown) => this.#freed(error)),
        () => this.#isClosed,
      );
    } catch (error) {
      throw this.explained(error);
    }
  }
}
