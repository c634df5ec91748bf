import { mkdtemp, rm } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { FleetJournal } from "./journal.ts";

/** A journal for checking items that never run. Disposing removes it. */
export async function throwawayJournal(): Promise<AsyncDisposable & { readonly journal: FleetJournal }> {
  const dir = await mkdtemp(join(tmpdir(), "corral-dry-run-"));
  const remove = (): Promise<void> => rm(dir, { recursive: true, force: true });
  try {
    const journal = await FleetJournal.open(join(dir, "fleets.db"), { self: "dry-run", isDead: () => false });
    return {
      journal,
      async [Symbol.asyncDispose]() {
        journal[Symbol.dispose]();
        await remove();
      },
    };
  } catch (error) {
    await remove();
    throw error;
  }
}
