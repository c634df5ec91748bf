import { randomUUID } from "node:crypto";
import { mkdir, rename } from "node:fs/promises";
import { join } from "node:path";
import { removeTree } from "../../files/host/remove-tree.ts";
import { hasCode } from "../../platform/errno.ts";
import { holderOf, isHeld, type LockOwner, tryHoldFile } from "../../state/file-lock.ts";
import { isOutOfSight } from "../../state/owner.ts";
import { BrokenApplyLog } from "../apply/apply-log.ts";
import { EndedChangesets } from "./ended-changesets.ts";
import { isThere, namesIn } from "./existing.ts";
import { missing, type NotKept, whyBusy } from "./kept-changeset.ts";
import { BrokenRecord, KeptFolder } from "./kept-folder.ts";
import { isChangesetId } from "./record.ts";

const REMOVED = ".removed-";

/** The folders of all kept changesets: which there are, which process works on one, and how one goes. */
export class ChangesetFolders {
  readonly #root: string;
  readonly #owner: LockOwner;
  readonly ended: EndedChangesets;

  constructor(root: string, owner: LockOwner) {
    this.#root = root;
    this.#owner = owner;
    this.ended = new EndedChangesets(root);
  }

  async ids(): Promise<string[]> {
    return (await namesIn(this.#root)).filter(isChangesetId);
  }

  has(id: string): boolean {
    return isChangesetId(id) && isThere(this.of(id).dir);
  }

  of(id: string): KeptFolder {
    if (!isChangesetId(id)) throw new RangeError("not a changeset id");
    return new KeptFolder(join(this.#root, id));
  }

  async make({ dir }: KeptFolder): Promise<void> {
    await mkdir(dir, { recursive: true, mode: 0o700 });
  }

  async isHeld({ lock }: KeptFolder): Promise<boolean> {
    return await isHeld(lock, this.#owner);
  }

  /** Null if another process is working on it, or has just removed it. */
  async hold({ lock }: KeptFolder): Promise<AsyncDisposable | null> {
    try {
      return await tryHoldFile(lock, this.#owner);
    } catch (error) {
      if (hasCode(error, "ENOENT")) return null;
      throw error;
    }
  }

  /** Acts on one while no other process works on it. */
  async holding<T extends { readonly ok: true }>(
    id: string,
    act: (folder: KeptFolder) => Promise<T | NotKept>,
  ): Promise<T | NotKept> {
    if (!this.has(id)) return missing(id);
    const folder = this.of(id);
    await using held = await this.hold(folder);
    if (held !== null) return await unlessBroken(id, () => act(folder));
    return { ok: false, code: "busy", reason: await this.whyBusy(folder, id) };
  }

  async whyBusy({ lock }: KeptFolder, id: string): Promise<string> {
    const holder = await holderOf(lock);
    return whyBusy(id, holder !== null && isOutOfSight(holder, this.#owner.name) ? lock : null);
  }

  /** Renamed first, so that it disappears from the list at once. */
  async remove(folder: KeptFolder): Promise<void> {
    const away = join(this.#root, `${REMOVED}${randomUUID()}`);
    await rename(folder.dir, away);
    await removeTree(away);
  }

  /** Removes what a process that ended had begun to remove. */
  async finishRemovals(): Promise<void> {
    for (const name of await namesIn(this.#root)) {
      if (name.startsWith(REMOVED)) await removeTree(join(this.#root, name));
    }
  }

  /** Nothing of it waits any more. The end of an item's changeset stays until the journal of its fleet knows it. */
  async end(folder: KeptFolder): Promise<void> {
    const state = await folder.readState().catch((error: unknown) => {
      if (error instanceof BrokenRecord) return null;
      throw error;
    });
    if (state?.fleet === undefined) return await this.remove(folder);
    await this.ended.add(folder, state);
  }
}

export async function unlessBroken<T extends { readonly ok: true }>(
  id: string,
  act: () => Promise<T | NotKept>,
): Promise<T | NotKept> {
  try {
    return await act();
  } catch (error) {
    if (!(error instanceof BrokenRecord) && !(error instanceof BrokenApplyLog)) throw error;
    return { ok: false, code: "broken", reason: `the record of changeset ${id} cannot be read: ${error.message}` };
  }
}
