import { applyChangeset } from "../../changes/apply/apply.ts";
import type { Changesets } from "./changesets.ts";

/** A called run's changes land in its caller's view, which goes away with the caller: nothing of them waits for anybody. */
export function intoCaller(journalDir: string): Changesets {
  return {
    keep: async () => {},
    apply: async (changeset, indexes) => await applyChangeset(changeset, indexes, { journalDir }),
  };
}
