import type { Changeset } from "../../changes/model/changeset.ts";
import type { Outcome } from "./reported.ts";

/** Where the changes of root runs are applied from, and wait. A crash in the middle is finished from there. */
export interface Changesets {
  /** Takes over the changeset and its content: it waits until a person applies or discards it, who is told the reason. */
  keep(changeset: Changeset, state: "held" | "denied", reason: string): Promise<void>;
  /** Applies the changes of these indexes; what cannot be is kept. In the order of the changeset, one outcome for each index. */
  apply(changeset: Changeset, indexes: ReadonlySet<number>): Promise<Outcome[]>;
}
