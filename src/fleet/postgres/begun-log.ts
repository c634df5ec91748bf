import { appendedLines, appendLine } from "../../state/live-dir.ts";
import { QueueError } from "../model/queue.ts";
import type { Statements } from "./connection.ts";

/** A million items with one attempt each fit. */
const MAX_BYTES = 64 * 1024 ** 2;

interface Begun {
  readonly index: number;
  readonly attempt: number;
  readonly run: string;
}

/**
 * Which attempts of a fleet have begun to change files of this machine, in a file beside its state: a database that was restored to an
 * earlier state does not know them, and would run their items again. One line for each, written when the database has it, and before the
 * first change.
 */
export class BegunLog {
  readonly #path: string;
  readonly #fleet: string;
  #begun: Map<number, Begun> | null = null;

  constructor(path: string, fleet: string) {
    this.#path = path;
    this.#fleet = fleet;
  }

  /** @throws QueueError if it is not the attempt of this item that is known to have begun */
  async check({ index, run }: Pick<Begun, "index" | "run">): Promise<void> {
    const known = (await this.#read()).get(index);
    if (known !== undefined && known.run !== run) throw this.#restored(1);
  }

  async add(one: Begun): Promise<void> {
    const begun = await this.#read();
    if (begun.get(one.index)?.run === one.run) return;
    await appendLine(this.#path, `${one.index} ${one.attempt} ${one.run}`);
    begun.set(one.index, one);
  }

  /**
   * Compares it with the database: an item that has begun is being applied or done, or it was retried on purpose. Only such a retry keeps
   * the attempt that it replaces.
   *
   * @throws QueueError if the database is older
   */
  async compare(db: Statements, fleet: number): Promise<void> {
    const begun = await this.#read();
    if (begun.size === 0) return;
    const all = [...begun.values()];
    const rows = await db.query<{ position: number; retried: boolean }>(
      `SELECT b.position, EXISTS (
         SELECT 1 FROM corral.attempts a WHERE a.fleet = $1 AND a.position = b.position AND a.attempt >= b.attempt) AS retried
       FROM unnest($2::int[], $3::int[], $4::text[]) AS b (position, attempt, run)
       LEFT JOIN corral.items i ON i.fleet = $1 AND i.position = b.position
       WHERE i.attempt IS DISTINCT FROM b.attempt OR i.run IS DISTINCT FROM b.run OR i.state NOT IN ('applying', 'done')`,
      [fleet, all.map(({ index }) => index), all.map(({ attempt }) => attempt), all.map(({ run }) => run)],
    );
    const unknown = rows.filter(({ retried }) => !retried);
    if (unknown.length > 0) throw this.#restored(unknown.length);
    for (const { position } of rows) begun.delete(position);
  }

  /** A line that was cut does not count: its attempt had changed nothing. A whole line that is unreadable may be of any item, so it is refused. */
  async #read(): Promise<Map<number, Begun>> {
    if (this.#begun !== null) return this.#begun;
    const begun = new Map<number, Begun>();
    for (const line of await appendedLines(this.#path, MAX_BYTES)) {
      const [, index, attempt, run] = /^(\d+) (\d+) (\S+)$/.exec(line) ?? [];
      if (run === undefined) throw this.#damaged();
      begun.set(Number(index), { index: Number(index), attempt: Number(attempt), run });
    }
    this.#begun ??= begun;
    return this.#begun;
  }

  #damaged(): QueueError {
    return new QueueError(
      `${this.#path} is damaged: it lists which items of fleet ${this.#fleet} have begun to change files, so that none does it twice. If the ` +
        "queue was not restored to an earlier state, remove the file, and try again. " +
        `Otherwise cancel the fleet with \`corral fleet cancel ${this.#fleet}\`.`,
    );
  }

  #restored(count: number): QueueError {
    const items = count === 1 ? "1 item" : `${count} items`;
    return new QueueError(
      `The queue is older than the files of this machine: ${items} of fleet ${this.#fleet} had begun to change files, and the queue does not ` +
        "know it, so they would do it twice. It was restored from a backup, or a standby took over without the last commits. Cancel the " +
        `fleet with \`corral fleet cancel ${this.#fleet}\`. If doing it again does no harm, remove ${this.#path} and try again.`,
    );
  }
}
