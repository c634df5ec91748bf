import { afterEach, beforeEach } from "vitest";
import type { FleetStore } from "../../../src/fleet/model/store.ts";
import { type JournalFixture, journalFixture } from "./journal-fixture.ts";

/** What `journalForEach` opened last. */
export let fixture: JournalFixture;
export let journal: FleetStore;

/** Gives each test of a file a journal of its own. */
export function journalForEach(): void {
  beforeEach(async () => {
    fixture = journalFixture();
    journal = await fixture.open();
  });
  afterEach(async () => {
    await journal[Symbol.asyncDispose]();
    fixture[Symbol.dispose]();
  });
}

/** The same journal, opened again after a test closed it. */
export async function reopen(): Promise<void> {
  journal = await fixture.open();
}
