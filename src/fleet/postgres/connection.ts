import { QueueError } from "../model/queue-error.ts";

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

export interface Patience {
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
  query<Row>(text: string, values?: readonly unknown[], patience?: Patience): Promise<Row[]>;
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
