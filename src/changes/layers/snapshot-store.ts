import { randomBytes } from "node:crypto";
import { mkdir, readdir, readFile, rename, rm, stat, writeFile } from "node:fs/promises";
import { join } from "node:path";
import { z } from "zod";
import { removeTree } from "../../files/host/system-program.ts";
import { examine, parseJson } from "../../json/parse-json.ts";
import { nullFor } from "../../platform/errno.ts";
import { writeAtomically } from "../../platform/write-file.ts";
import type { VirtualPath } from "../../sandbox/virtual-path.ts";
import { holdFile } from "../../state/file-lock.ts";
import { allOwnerDirs, keepAfterDeath, keepNothing } from "../../state/live-dir.ts";
import { lockOwner } from "../../state/owner.ts";
import type { BaseNode, BaseTree } from "../view/base-tree.ts";
import type { FrozenView } from "../view/view.ts";

const ID = /^[0-9a-f]{12}$/;
const LAYER = /^[0-9a-f]{16}$/;
const LAYERS = "layers";
const RECORD = "snapshot.json";
/** Of one project. */
const MAX_SNAPSHOTS = 1000;
/** The names of a directory with 200,000 entries, and what is known of each. */
const MAX_BASE_BYTES = 256 * 1024 ** 2;
const MAX_RECORD_BYTES = 16 * 1024 ** 2;
/** Others hold the lock while they list or remove. */
const LOCK_WAIT = { waitMs: 30_000, longestPauseMs: 20 };

const user = z.object({ uid: z.int(), gid: z.int() });
const frozenMount = z.object({
  path: z.string(),
  host: z.string(),
  identity: z.string(),
  kind: z.enum(["overlay", "copy"]),
  lentTo: user.nullable(),
  layers: z.array(z.string().regex(LAYER)),
});
const record = z.object({
  version: z.literal(1),
  id: z.string().regex(ID),
  name: z.string().nullable(),
  /** The session that it was made of: its run, and what it was called. */
  run: z.string().regex(ID),
  session: z.string().nullable(),
  worker: z.string(),
  policy: z.string().nullable(),
  createdAt: z.string(),
  /** Made at the end of the session, which can go on from it. */
  isLast: z.boolean(),
  mounts: z.array(frozenMount),
  /** Paths that the session wrote and that are in no snapshot: the directories themselves were written. */
  direct: z.array(z.string()),
  /** What the session was allowed: a session that starts from the snapshot is allowed no more. */
  sandbox: z.unknown(),
});

/** What is known of a snapshot without its files. */
export type SnapshotRecord = z.output<typeof record>;

/** A new one, with the views that were frozen. */
export type NewSnapshot = Omit<SnapshotRecord, "version" | "id" | "createdAt" | "mounts">;

/** Why there is no snapshot. The message is for people. */
export class NoSnapshot extends Error {
  readonly code: "UNKNOWN_SNAPSHOT" | "SNAPSHOT_NAME_TAKEN" | "TOO_MANY_SNAPSHOTS";

  constructor(code: NoSnapshot["code"], message: string) {
    super(message);
    this.code = code;
  }
}

/**
 * The snapshots of one project's sessions. A layer is one directory; snapshots name the layers that they consist of, and a layer stays as long
 * as a snapshot or a living session names it.
 */
export class SnapshotStore {
  readonly #root: string;
  readonly #liveDir: string;

  /** `root`: made when it is needed. `liveDir`: of all orchestrators, whose sessions may use layers. */
  constructor(root: string, liveDir: string) {
    this.#root = root;
    this.#liveDir = liveDir;
  }

  /** The oldest first. What cannot be read is left out: nothing can be opened of it. */
  async list(): Promise<SnapshotRecord[]> {
    const ids = (await readdir(this.#root).catch(nullFor("ENOENT"))) ?? [];
    const found = await Promise.all(ids.filter((name) => ID.test(name)).map((id) => this.#read(id)));
    return found.flatMap((one) => one ?? []).toSorted((a, b) => (a.createdAt < b.createdAt ? -1 : 1));
  }

  /** By its id, its name, or the id or name of the session whose last one it is. @throws NoSnapshot */
  async find(wanted: string): Promise<SnapshotRecord> {
    const all = await this.list();
    const found =
      all.find(({ id, name }) => id === wanted || name === wanted) ??
      all.findLast(({ isLast, run, session }) => isLast && (run === wanted || session === wanted));
    if (found !== undefined) return found;
    throw new NoSnapshot("UNKNOWN_SNAPSHOT", `there is no snapshot ${wanted.slice(0, 80)} of this project`);
  }

  /** With its files: its layers are held for the session that `ownerDir` and `run` name. @throws NoSnapshot */
  async open(wanted: string, ownerDir: string, run: string): Promise<{ record: SnapshotRecord; views: FrozenView[] }> {
    await using _ = await this.#locked();
    const found = await this.find(wanted);
    await this.hold(
      ownerDir,
      run,
      found.mounts.flatMap(({ layers }) => layers),
    );
    const views = found.mounts.map(async (mount, index): Promise<FrozenView> => {
      const base = parsedBase(await this.#text(found.id, `base.${index}`, MAX_BASE_BYTES));
      const layers = mount.layers.map((layer) => this.#layer(layer));
      return { ...mount, path: mount.path as VirtualPath, layers, base };
    });
    return { record: found, views: await Promise.all(views) };
  }

  /** A directory for a new layer, which is still to be made. The session uses it until it ends. */
  async newLayer(ownerDir: string, run: string): Promise<string> {
    const layer = randomBytes(8).toString("hex");
    await mkdir(join(this.#root, LAYERS), { recursive: true, mode: 0o700 });
    await this.hold(ownerDir, run, [layer]);
    return this.#layer(layer);
  }

  /** Names layers that a living session uses. */
  async hold(ownerDir: string, run: string, layers: readonly string[]): Promise<void> {
    const text = layers.map((layer) => `${layer}\n`).join("");
    await writeFile(join(ownerDir, `${run}.${LAYERS}`), text, { mode: 0o600, flag: "a" });
  }

  /**
   * Has this become the last snapshot of the session if its process dies, by the next one that removes what that left. Nothing is frozen now: `content` is the
   * directory that is written above the layers; null: nothing was.
   */
  async prepare(ownerDir: string, about: NewSnapshot, views: readonly GoingView[]): Promise<void> {
    const { run } = about;
    const id = randomBytes(6).toString("hex");
    const making = join(ownerDir, `${run}.last-${id}`);
    await mkdir(making, { mode: 0o700 });
    const moves: [string, string][] = [];
    const frozen: FrozenView[] = [];
    for (const { content, ...view } of views) {
      const layer = content === null ? null : await this.newLayer(ownerDir, run);
      if (content !== null && layer !== null) moves.push([content, layer]);
      frozen.push(layer === null ? view : { ...view, layers: [...view.layers, layer] });
    }
    await writeSnapshot(making, id, about, frozen);
    await keepAfterDeath(ownerDir, run, [...moves, [making, join(this.#root, id)]]);
    const old = (await readdir(ownerDir)).filter((name) => name.startsWith(`${run}.last-`) && !name.endsWith(id));
    for (const name of old) await removeTree(join(ownerDir, name));
  }

  /** @throws NoSnapshot */
  async add(about: NewSnapshot, views: readonly FrozenView[]): Promise<SnapshotRecord> {
    await mkdir(this.#root, { recursive: true, mode: 0o700 });
    await using _ = await this.#locked();
    const all = await this.list();
    if (all.length >= MAX_SNAPSHOTS)
      throw new NoSnapshot("TOO_MANY_SNAPSHOTS", `the project has ${MAX_SNAPSHOTS} snapshots; remove some`);
    this.#refuseTaken(all, about.name);
    const id = randomBytes(6).toString("hex");
    const making = join(this.#root, `.new-${id}`);
    await mkdir(making, { mode: 0o700 });
    const added = await writeSnapshot(making, id, about, views);
    await rename(making, join(this.#root, id));
    return added;
  }

  /** Refuses a name before anything is frozen for it. @throws NoSnapshot */
  async refuseTaken(name: string | null): Promise<void> {
    this.#refuseTaken(await this.list(), name);
  }

  /** Removes those that fit, and the layers that nothing needs any more. Returns what was removed. */
  async remove(fits: (one: SnapshotRecord) => boolean): Promise<SnapshotRecord[]> {
    if ((await stat(this.#root).catch(nullFor("ENOENT"))) === null) return [];
    await using _ = await this.#locked();
    const removed = (await this.list()).filter(fits);
    for (const { id } of removed) await this.#discard(join(this.#root, id));
    await this.#sweep();
    return removed;
  }

  /** Directories whose size is that of a snapshot; layers that others have too are among them. */
  placesOf({ id, mounts }: SnapshotRecord): string[] {
    return [join(this.#root, id), ...mounts.flatMap(({ layers }) => layers.map((layer) => this.#layer(layer)))];
  }

  #refuseTaken(all: readonly SnapshotRecord[], name: string | null): void {
    if (name !== null && all.some((one) => one.name === name))
      throw new NoSnapshot(
        "SNAPSHOT_NAME_TAKEN",
        `there is a snapshot ${name} already; remove it, or choose another name`,
      );
  }

  #layer(layer: string): string {
    return join(this.#root, LAYERS, layer);
  }

  async #locked(): Promise<AsyncDisposable> {
    return await holdFile(join(this.#root, "lock"), lockOwner(), LOCK_WAIT);
  }

  async #read(id: string): Promise<SnapshotRecord | null> {
    const text = await this.#text(id, RECORD, MAX_RECORD_BYTES).catch(() => "");
    const parsed = parseJson(text);
    const found = parsed.ok ? examine(record, parsed.value) : null;
    return found?.success && found.data.id === id ? found.data : null;
  }

  async #text(id: string, name: string, maxBytes: number): Promise<string> {
    const path = join(this.#root, id, name);
    if ((await stat(path)).size > maxBytes) throw new Error(`${path} is larger than Corral writes it`);
    return await readFile(path, "utf8");
  }

  /** Removes layers that no snapshot and no living session names, and what was not finished. The lock is held. */
  async #sweep(): Promise<void> {
    // Layers first: whoever makes one names it before.
    const layers = (await readdir(join(this.#root, LAYERS)).catch(nullFor("ENOENT"))) ?? [];
    const all = await this.list();
    const named = all.flatMap(({ mounts }) => mounts.flatMap((mount) => mount.layers));
    const used = new Set([...named, ...(await this.#held())]);
    for (const layer of layers) if (!used.has(layer)) await this.#discard(join(this.#root, LAYERS, layer));
    for (const name of await readdir(this.#root))
      if (/^\.(?:new|removed)-/.test(name)) await removeTree(join(this.#root, name));
  }

  async #held(): Promise<string[]> {
    // What a dead process left may still become a snapshot.
    const dirs = await allOwnerDirs(this.#liveDir);
    const texts = dirs.map(async (dir) => {
      const names = ((await readdir(dir).catch(nullFor("ENOENT"))) ?? []).filter((name) => name.endsWith(`.${LAYERS}`));
      return await Promise.all(names.map((name) => readFile(join(dir, name), "utf8").catch(() => "")));
    });
    return (await Promise.all(texts)).flat().flatMap((text) => text.split("\n"));
  }

  /** Renamed first: what is half removed is no snapshot. */
  async #discard(path: string): Promise<void> {
    const going = join(this.#root, `.removed-${randomBytes(6).toString("hex")}`);
    if ((await rename(path, going).then(() => true, nullFor("ENOENT"))) === null) return;
    await removeTree(going);
  }
}

/** What becomes of a view if the process of its session dies. */
export type GoingView = FrozenView & { readonly content: string | null };

async function writeSnapshot(
  dir: string,
  id: string,
  about: NewSnapshot,
  views: readonly FrozenView[],
): Promise<SnapshotRecord> {
  const mounts = views.map(({ path, host, identity, kind, lentTo, layers }) => ({
    ...{ path, host, identity, kind, lentTo },
    layers: layers.map((layer) => layer.slice(-16)),
  }));
  const record: SnapshotRecord = { version: 1, id, createdAt: new Date().toISOString(), ...about, mounts };
  for (const [index, { base }] of views.entries())
    await writeFile(join(dir, `base.${index}`), JSON.stringify(baseRows(base)), { mode: 0o600 });
  await writeAtomically(join(dir, RECORD), JSON.stringify(record));
  return record;
}

/** Of a session that has ended: nothing of it uses its layers any more. False: it had none. */
export async function releaseLayers(ownerDir: string, run: string): Promise<boolean> {
  await keepNothing(ownerDir, run);
  for (const name of await readdir(ownerDir))
    if (name.startsWith(`${run}.last-`)) await removeTree(join(ownerDir, name));
  return (await rm(join(ownerDir, `${run}.${LAYERS}`)).then(() => true, nullFor("ENOENT"))) ?? false;
}

type BaseRow = [string, Omit<BaseNode, "children">, BaseRow[] | null];

function baseRows(base: BaseTree): BaseRow[] {
  return [...base].map(([name, { children, ...node }]) => [name, node, children === null ? null : baseRows(children)]);
}

/** Only Corral writes it, in its state directory. */
function parsedBase(text: string): BaseTree {
  const treeOf = (rows: readonly BaseRow[]): BaseTree =>
    new Map(rows.map(([name, node, below]) => [name, { ...node, children: below === null ? null : treeOf(below) }]));
  return treeOf(JSON.parse(text) as BaseRow[]);
}
