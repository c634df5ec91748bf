import type { AuditTrail } from "../../audit/trail.ts";
import type { Changeset } from "../../changes/changeset.ts";
import { ChangesetStore } from "../../changes/store/changeset-store.ts";
import type { Holder } from "../../changes/store/holding.ts";
import { formatOwner, isDead, type Owner, parseOwner } from "../../isolation/owner.ts";
import type { Changesets } from "./changesets.ts";
import { counted, type Outcome } from "./reported.ts";

/** The store of a state directory, as this process works on it. */
export function changesetStore(stateDir: string, self: Owner): ChangesetStore {
  return new ChangesetStore(stateDir, holderOf(self));
}

/** The changes of root runs: applied from the store, and written down before and after. */
export function intoProject(store: ChangesetStore, audit: AuditTrail): Changesets {
  return {
    keep: async (changeset, state) => await store.keep(changeset, state),
    async apply(changeset, indexes) {
      const changes = changeset.changes.filter(({ index }) => indexes.has(index));
      // On the disk before the first file is touched; where it cannot be written nothing is applied.
      await audit.append({
        type: "changes_applying",
        ...who(changeset),
        count: changes.length,
        changes: changes.map(named),
      });
      const outcomes = await store.apply(changeset, indexes);
      await audit.append({
        type: "changes_applied",
        ...who(changeset),
        counts: counted(outcomes),
        changes: outcomes.map(({ change, outcome }) => ({ ...named(change), outcome })),
      });
      return outcomes;
    },
  };
}

/** Where nothing is run, nothing is changed. */
export const noChangesets: Changesets = {
  keep: async () => {},
  apply: async () => [],
};

function who({ id, run, root, worker }: Changeset) {
  return { changeset: id, run, root, worker };
}

function named({ path, kind }: Outcome["change"]) {
  return { path, kind };
}

function holderOf(self: Owner): Holder {
  return {
    name: formatOwner(self),
    // What is no owner at all was not written by any process that could still be alive.
    isDead: (name) => {
      const owner = parseOwner(name);
      return owner === null || isDead(owner, self);
    },
  };
}
