import type { Connection } from "./connection.ts";

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
