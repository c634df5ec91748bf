import { mkdtemp, rm } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import type { FleetStore } from "../model/store.ts";
import { FleetJournal } from "./journal.ts";

/** A store for checking items that never run. Disposing removes it. */
export async function throwawayStore(): Promise<AsyncDisposable & { readonly store: FleetStore }> {
  const dir = await mkdtemp(join(tmpdir(), "corral-dry-run-"));
  const remove = (): Promise<void> => rm(dir, { recursive: true, force: true });
  try {
    const store: FleetStore = await FleetJournal.open(join(dir, "fleets.db"), { self: "dry-run", isDead: () => false });
    return {
      store,
      async [Symbol.asyncDispose]() {
        await store[Symbol.asyncDispose]();
        await remove();
      },
    };
  } catch (error) {
    await remove();
    throw error;
  }
}
