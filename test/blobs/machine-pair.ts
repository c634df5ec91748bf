import fs from "node:fs";
import { join } from "node:path";
import type { BlobStore, Digest } from "../../src/blobs/blob.ts";
import { DirectoryBlobs } from "../../src/blobs/directory-blobs.ts";
import { Mirrors, type TreeMirror } from "../../src/blobs/mirrors.ts";
import { readTree, sendTree } from "../../src/blobs/send-mounts.ts";
import { applyChangeset } from "../../src/changes/apply/application.ts";
import type { Settled } from "../../src/changes/apply/fitness.ts";
import { Agreed, type ChangesOf, type Collected, collectChanges } from "../../src/changes/collect.ts";
import { openView, type View } from "../../src/changes/view/view.ts";
import { exportChangeset } from "../../src/changes/wire/document.ts";
import { type ImportRequest, importChangeset } from "../../src/changes/wire/import.ts";
import type { Mount } from "../../src/sandbox/mount.ts";
import type { VirtualPath } from "../../src/sandbox/virtual-path.ts";
import { lockOwner } from "../../src/state/owner.ts";
import { temporaryFolder } from "../files/temporary-folder.ts";

export const DATA = "/data" as VirtualPath;
export const OF: ChangesOf = {
  id: "0123456789ab",
  run: "0123456789ab",
  root: "0123456789ab",
  worker: "writer",
  project: "/project",
  createdAt: "2026-01-01T00:00:00.000Z",
};
export const NEVER = new AbortController().signal;
const MAX_BYTES = 1024 ** 3;

/** A project with one directory, a blob store, and a machine that has mirrors. Disposing removes all. */
export interface MachinePair extends AsyncDisposable {
  readonly path: string;
  /** The directory of the project. */
  readonly home: string;
  readonly store: BlobStore;
  readonly storeDir: string;
  readonly mirrors: Mirrors;
  readonly mirrorsDir: string;
  mount(more?: Partial<Mount>): Mount;
  /** Sends the directory, and mirrors it on the machine. */
  mirrored(mount?: Mount, mounts?: readonly Mount[]): Promise<TreeMirror & { readonly digest: Digest }>;
  /** Runs something in a view of the mirror, and delivers what it changed. Null: nothing. */
  delivered(run: (dir: string) => void, mount?: Mount): Promise<Digest | null>;
  imported(digest: Digest, more?: Partial<ImportRequest>): Promise<(Collected & AsyncDisposable) | null>;
  apply(collected: Collected): Promise<Settled[]>;
}

export function machinePair(makeStore?: (dir: string) => BlobStore): MachinePair {
  const folder = temporaryFolder();
  const [home, storeDir, mirrorsDir] = ["home", "store", "mirrors"].map((name) => join(folder.path, name)) as [
    string,
    string,
    string,
  ];
  fs.mkdirSync(home);
  fs.mkdirSync(storeDir, { mode: 0o700 });
  const store = makeStore?.(storeDir) ?? new DirectoryBlobs(storeDir);
  const mirrors = new Mirrors({ dir: mirrorsDir, owner: lockOwner() });
  const closing: AsyncDisposable[] = [];
  let made = 0;
  const fresh = (name: string): string => join(folder.path, `${name}-${++made}`);
  const mount = (more: Partial<Mount> = {}): Mount => ({ name: "data", path: DATA, host: home, mode: "rw", ...more });
  const mirrored: MachinePair["mirrored"] = async (own = mount(), mounts = [own]) => {
    const { tree } = await readTree({ mount: own, mounts });
    const digest = await sendTree(tree, { mount: own, store });
    const mirror = await mirrors.open(digest, store, NEVER);
    closing.push(mirror);
    return { ...mirror, digest };
  };
  return {
    path: folder.path,
    home,
    store,
    storeDir,
    mirrors,
    mirrorsDir,
    mount,
    mirrored,
    async delivered(run, own = mount()) {
      const { path } = await mirrored(own);
      const view = await viewOf({ ...own, host: path }, fresh("view"));
      try {
        run(view.host);
        const collected = await collectChanges([view], new Agreed(), MAX_BYTES, OF, undefined);
        return collected === null ? null : await exportChangeset(collected.changeset, store);
      } finally {
        await view.close();
      }
    },
    async imported(digest, more = {}) {
      const found = await importChangeset({
        digest,
        store,
        home: { sandbox: { mounts: [mount()] } },
        dir: fresh("imported"),
        maxBytes: MAX_BYTES,
        of: OF,
        ...more,
      });
      if (found !== null) closing.push(found);
      return found;
    },
    async apply({ changeset }) {
      return await applyChangeset(
        changeset,
        changeset.changes.map(({ index }) => index),
        { logDir: fresh("log") },
      );
    },
    async [Symbol.asyncDispose]() {
      for (const one of closing.toReversed()) await one[Symbol.asyncDispose]();
      folder.remove();
    },
  };
}

export async function viewOf(mount: Mount, dir: string, overlays = true): Promise<View> {
  fs.mkdirSync(dir);
  const view = await openView({ mount, mounts: [mount], dir, overlays });
  if (view === null) throw new Error("the view cannot be opened");
  return view;
}

/** Each change with its reason, as text. */
export function told({ changeset }: Collected): string[] {
  return changeset.changes.map(
    ({ kind, type, path, refusal }) => `${kind} ${type} ${path}${refusal === null ? "" : `: ${refusal}`}`,
  );
}
