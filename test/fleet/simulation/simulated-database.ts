import type { PGlite } from "@electric-sql/pglite";
import { type Connection, type Rows, type Statements, storable } from "../../../src/fleet/postgres/connection.ts";
import { migrate } from "../../../src/fleet/postgres/migrate.ts";
import { openPglite, pgliteConnection } from "../postgres/pglite-connection.ts";
import type { VirtualProcess, VirtualWorld } from "./virtual-world.ts";

/** A connection that is lost for so long fails, as that to a server does. */
const LONGEST_LOST_MS = 60_000;
const MAX_LATENCY_MS = 12;
/** Until it is noticed that an answer is lost. */
export const MAX_NOTICED_MS = 7000;
/** What a network may bring once more, and late: its answer goes to no one. */
const ONCE_MORE = /machine_(deliver|give_back)\(/;
const AGAIN_SHARE = 0.3;
const LATEST_AGAIN_MS = 6000;
const TABLES = [
  ...["processes", "fleets", "items", "requests", "results", "streams", "intents", "attempts", "outputs", "tallies"],
  ...["deliveries", "paces", "refusals"],
];

/** One step of the database, in the order in which they were committed. */
export interface Step {
  /** The process that made it. */
  readonly who: string;
  readonly at: number;
  /** `item`: from one state to another; `lease`: of a process, 0 if it has none any more; `fleet`: its state and owner. */
  readonly of: "item" | "lease" | "fleet";
  readonly row: Readonly<Record<string, unknown>>;
  readonly was: Readonly<Record<string, unknown>> | null;
}

/** Corral's own statements in PostgreSQL, with the time of a world, and with a log of each step that they make. */
export class SimulatedDatabase {
  readonly #database: PGlite;
  #turn: Promise<unknown> = Promise.resolve();
  #listening: (() => Promise<void>)[] = [];

  private constructor(database: PGlite) {
    this.#database = database;
  }

  static async open(): Promise<SimulatedDatabase> {
    const database = await openPglite();
    await migrate(pgliteConnection(database), "corral");
    await database.exec(`
      CREATE OR REPLACE FUNCTION corral.now_ms() RETURNS bigint LANGUAGE sql VOLATILE AS
        $$ SELECT current_setting('world.now')::bigint $$;
      CREATE TABLE public.steps (
        n bigint GENERATED ALWAYS AS IDENTITY, who text, at bigint, of text, row jsonb, was jsonb);
      CREATE FUNCTION public.step() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN
        INSERT INTO public.steps (who, at, of, row, was) VALUES (current_setting('world.who'), corral.now_ms(), TG_ARGV[0],
          CASE WHEN TG_OP = 'DELETE' THEN to_jsonb(OLD) ELSE to_jsonb(NEW) END,
          CASE WHEN TG_OP = 'INSERT' THEN NULL ELSE to_jsonb(OLD) END);
        RETURN NULL; END $$;
      CREATE TRIGGER step AFTER UPDATE ON corral.items FOR EACH ROW WHEN (OLD IS DISTINCT FROM NEW) EXECUTE FUNCTION public.step('item');
      CREATE TRIGGER step AFTER INSERT OR UPDATE ON corral.fleets FOR EACH ROW EXECUTE FUNCTION public.step('fleet');
      CREATE TRIGGER step AFTER INSERT OR UPDATE ON corral.processes FOR EACH ROW EXECUTE FUNCTION public.step('lease');
      CREATE TRIGGER gone AFTER DELETE ON corral.processes FOR EACH ROW EXECUTE FUNCTION public.step('gone');`);
    return new SimulatedDatabase(database);
  }

  /** As if it were new. */
  async clear(): Promise<void> {
    for (const end of this.#listening.splice(0)) await end();
    await this.#database.exec(`TRUNCATE ${TABLES.map((name) => `corral.${name}`).join(", ")}, public.steps`);
  }

  async steps(): Promise<Step[]> {
    const { rows } = await this.#database.query<Omit<Step, "of"> & { of: Step["of"] | "gone" }>(
      "SELECT who, at, of, row, was FROM public.steps ORDER BY n",
    );
    return rows.map(({ of, row, ...step }) =>
      of === "gone" ? { ...step, of: "lease", row: { ...row, lease_until: 0 } } : { ...step, of, row },
    );
  }

  async query<Row>(text: string): Promise<Row[]> {
    return (await this.#database.query<Row>(text)).rows;
  }

  async close(): Promise<void> {
    await this.#database.close();
  }

  /** Of one process. Each statement takes some time, and is tried again if its answer is lost. */
  connection(world: VirtualWorld, process: VirtualProcess, random: () => number): Connection {
    const latency = (): Promise<void> => world.pause(random() * MAX_LATENCY_MS);
    const ask = async <T>(work: (again: boolean) => Promise<T>): Promise<T> => {
      const begunAt = world.now();
      for (let again = false; ; ) {
        await latency();
        if (process.isCut) {
          if (world.now() - begunAt > LONGEST_LOST_MS) throw new Error("the simulated database does not answer");
          await world.pause(200);
          continue;
        }
        const answer = await this.#alone(world, process, async () => await work(again));
        again = true;
        const isLost = random() < process.lostAnswers;
        await latency();
        if (!isLost && !process.isCut) return answer;
        await world.pause(random() * MAX_NOTICED_MS);
      }
    };
    const on = (session: Pick<PGlite, "query">): Statements => ({
      query: async <Row>(text: string, values: readonly unknown[] = []) =>
        (await session.query<Row>(text, values.map(storable))).rows,
    });
    const transaction: Connection["transaction"] = (work) =>
      ask((again) =>
        this.#database.transaction(async (session) => await work(on(session as unknown as PGlite), again)),
      );
    return {
      query: async (text, values) => {
        const work = () => on(this.#database).query<never>(text, values);
        if (ONCE_MORE.test(text) && random() < AGAIN_SHARE)
          void world
            .pause(random() * LATEST_AGAIN_MS)
            .then(() => ask(work))
            .catch(() => {});
        return await ask(work);
      },
      transaction,
      together: async (statements) =>
        await transaction(async (within, again) => {
          const rows: Rows[] = [];
          for (const { text, values } of statements(again)) rows.push(await within.query(text, values));
          return rows;
        }),
      endHolders: async () => 0,
      listen: async (heard) => {
        // What the notice is about is committed later than it is sent here, and some are lost.
        const told = (): void => world.as(process, () => void latency().then(() => process.isCut || heard()));
        await this.#alone(world, process, async () => {
          this.#listening.push(await this.#database.listen("corral", told));
        });
      },
      [Symbol.asyncDispose]: async () => {},
    };
  }

  /** One after another, each at its own time. */
  async #alone<T>(world: VirtualWorld, process: VirtualProcess, work: () => Promise<T>): Promise<T> {
    world.busy += 1;
    const turn = this.#turn.then(async () => {
      await this.#database.query("SELECT set_config('world.now', $1, false), set_config('world.who', $2, false)", [
        `${Math.floor(world.time)}`,
        process.name,
      ]);
      return await work();
    });
    this.#turn = turn.catch(() => {});
    try {
      return await turn;
    } finally {
      world.busy -= 1;
    }
  }
}
