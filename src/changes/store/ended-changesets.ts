import { rename } from "node:fs/promises";
import { join } from "node:path";
import { removeTree } from "../../files/host/remove-tree.ts";
import { isThere, namesIn } from "./existing.ts";
import { BrokenRecord, KeptFolder } from "./kept-folder.ts";
import { isChangesetId, type KeptState } from "./record.ts";

/** The end of a changeset of a fleet's item: what is not `applied` was discarded or refused. */
export interface Ended {
  readonly id: string;
  readonly state: KeptState;
}

const ENDED = ".ended-";

/**
 * Changesets of fleets' items that ended, in the same directory, until {@link EndedChangesets.forget}: a process may die before the
 * fleet's journal knows their end.
 */
export class EndedChangesets {
  readonly #root: string;

  constructor(root: string) {
    this.#root = root;
  }

  /** `id`: only this one. */
  async *each(id: string | null): AsyncGenerator<Ended> {
    for (const name of id === null ? await namesIn(this.#root) : [`${ENDED}${id}`]) {
      const ended = name.startsWith(ENDED) ? name.slice(ENDED.length) : "";
      if (!isChangesetId(ended)) continue;
      const state = await new KeptFolder(join(this.#root, name)).readState().catch((error: unknown) => {
        // Another process has removed it meanwhile.
        if (error instanceof BrokenRecord) return null;
        throw error;
      });
      if (state !== null) yield { id: ended, state };
    }
  }

  /** Where the record of an ended one is. */
  folderOf(id: string): KeptFolder {
    return new KeptFolder(this.#of(id));
  }

  async add({ dir }: KeptFolder, { id }: KeptState): Promise<void> {
    await rename(dir, this.#of(id));
  }

  has(id: string): boolean {
    return isChangesetId(id) && isThere(this.#of(id));
  }

  async forget(id: string): Promise<void> {
    if (isChangesetId(id)) await removeTree(this.#of(id));
  }

  #of(id: string): string {
    return join(this.#root, `${ENDED}${id}`);
  }
}
