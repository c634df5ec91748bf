import { randomBytes } from "node:crypto";
import { appendFileSync } from "node:fs";
import { mkdir, readdir, readFile, realpath, rename, rm, stat, utimes, writeFile } from "node:fs/promises";
import { join } from "node:path";
import { z } from "zod";
import { Descriptor, detachMount } from "../../files/host/descriptor.ts";
import { removeTree } from "../../files/host/system-program.ts";
import { parseJson } from "../../json/parse-json.ts";
import { nullFor } from "../../platform/errno.ts";
import { sha256 } from "../../platform/sha256.ts";
import { writeAtomically } from "../../platform/write-file.ts";
import { holdFile } from "../../state/file-lock.ts";
import { livingOwnerDirs } from "../../state/live-dir.ts";
import { currentOwner, lockOwner } from "../../state/owner.ts";
import { rawNameOf, rawStat } from "../model/changeset.ts";
import { CannotStage, copyTree, readBaseTree } from "../view/base-tree.ts";
import type { HostUser } from "../view/lending.ts";
import { mountLayers } from "../view/overlay.ts";
import { makeFolders } from "../view/view.ts";

/** The directories of an image that a worker with a writable root writes, if the image has them. */
export const ROOT_FOLDERS = "bin etc lib lib32 lib64 libx32 opt sbin srv usr var".split(" ");

/** The unpacked layers of an image, in use until it is disposed of. */
export interface ImageLayers extends Disposable {
  /** Absolute: where they are. */
  readonly dir: string;
  /** Their names there, the uppermost first. */
  readonly layers: readonly string[];
}

export interface RootTreeRequest {
  /** `sha256:…` */
  readonly image: string;
  readonly user: HostUser;
  /** Null: the image is gone. */
  readonly layers: () => Promise<ImageLayers | null>;
  /** The staging area of the run that uses it, in the directory of a living process: until that is removed, the tree stays. */
  readonly stageDir: string;
  readonly signal: AbortSignal | undefined;
}

const About = z.object({ image: z.string(), uid: z.int(), gid: z.int(), bytes: z.number() });
const ABOUT = "about.json";
const NAME = /^[0-9a-f]{32}$/;
const DRAFT = ".new-";
const GOING = ".removed-";
const HELD = "root";
/** To copy an image of some gigabytes takes minutes. */
const PATIENCE = { waitMs: 30 * 60_000, longestPauseMs: 200 };
/** Files that every cell has a mount over, so that no driver has to make them. */
const NAME_FILES = ["hosts", "hostname", "resolv.conf"];

/**
 * The directories of images as one user's own: what a writable root shows before anything is written. Each is a copy without set-user-ID
 * bits, devices and attributes, made once for an image and a user, and never written again.
 */
export class RootTrees {
  readonly #dir: string;
  readonly #liveDir: string;

  constructor(dir: string, liveDir: string) {
    this.#dir = dir;
    this.#liveDir = liveDir;
  }

  /** The directory of one, made if it is missing. Null: there is no such image. Rejects with `CannotStage` if it cannot be made. */
  async use(request: RootTreeRequest): Promise<string | null> {
    const { image, user, stageDir } = request;
    const name = sha256(`${image} ${user.uid}:${user.gid}`).slice(0, 32);
    // Said before it is looked for: what a living run names is not removed.
    await writeFile(join(stageDir, HELD), name, { mode: 0o600 });
    await mkdir(this.#dir, { recursive: true, mode: 0o700 });
    await using _ = await holdFile(join(this.#dir, "lock"), lockOwner(), PATIENCE);
    const place = join(this.#dir, name);
    const isThere = (await stat(join(place, ABOUT)).catch(nullFor("ENOENT"))) !== null;
    if (!isThere && !(await this.#made(place, request))) return null;
    await utimes(join(place, ABOUT), new Date(), new Date());
    return join(place, "tree");
  }

  /** How many there are, and the bytes of their files. */
  async measure(): Promise<{ readonly count: number; readonly bytes: number }> {
    const all = await this.#all();
    return { count: all.length, bytes: all.reduce((sum, { bytes }) => sum + bytes, 0) };
  }

  /** Removes those that no living run uses and that were not used since, and what dead processes left half made. */
  async letGo({ usedBefore, dryRun }: { readonly usedBefore: number; readonly dryRun: boolean }) {
    if ((await stat(this.#dir).catch(nullFor("ENOENT"))) === null) return [];
    await using _ = await holdFile(join(this.#dir, "lock"), lockOwner(), PATIENCE);
    const held = await this.#held();
    const gone = (await this.#all()).filter(({ name, usedAt }) => usedAt < usedBefore && !held.has(name));
    if (dryRun) return gone;
    for (const { name } of gone) {
      const going = join(this.#dir, `${GOING}${name}`);
      await rename(join(this.#dir, name), going);
      await removeTree(going);
    }
    await this.#sweep();
    return gone;
  }

  /** The lock is held. */
  async #made(place: string, { image, user, layers, signal }: RootTreeRequest): Promise<boolean> {
    using used = await layers();
    if (used === null) return false;
    await this.#sweep();
    const draft = join(this.#dir, `${DRAFT}${randomBytes(6).toString("hex")}`);
    await mkdir(draft, { mode: 0o700 });
    try {
      const tree = join(draft, "tree");
      await mkdir(tree, { mode: 0o755 });
      const bytes = await copied(used, join(draft, "image"), tree, user, signal);
      const about: z.infer<typeof About> = { image, ...user, bytes };
      await writeAtomically(join(draft, ABOUT), JSON.stringify(about));
      await rename(draft, place);
      return true;
    } finally {
      await removeTree(draft);
    }
  }

  async #sweep(): Promise<void> {
    for (const name of await readdir(this.#dir)) {
      if (!name.startsWith(DRAFT) && !name.startsWith(GOING)) continue;
      await detachMount(join(this.#dir, name, "image"));
      await removeTree(join(this.#dir, name));
    }
  }

  async #all() {
    const names = (await readdir(this.#dir).catch(nullFor("ENOENT"))) ?? [];
    const found = names
      .filter((name) => NAME.test(name))
      .map(async (name) => {
        const file = join(this.#dir, name, ABOUT);
        const parsed = parseJson((await readFile(file, "utf8").catch(nullFor("ENOENT"))) ?? "");
        const about = parsed.ok ? About.safeParse(parsed.value).data : undefined;
        return about === undefined ? [] : [{ name, ...about, usedAt: (await stat(file)).mtimeMs }];
      });
    return (await Promise.all(found)).flat();
  }

  async #held(): Promise<ReadonlySet<string>> {
    const dirs = await livingOwnerDirs(this.#liveDir, currentOwner());
    const texts = dirs.map(async (dir) => {
      const names = ((await readdir(dir).catch(nullFor("ENOENT"))) ?? []).filter((name) => name.endsWith(".stage"));
      return await Promise.all(names.map((name) => readFile(join(dir, name, HELD), "utf8").catch(() => "")));
    });
    return new Set((await Promise.all(texts)).flat());
  }
}

/** Of what {@link ROOT_FOLDERS} names. Answers with how many bytes the files have. */
async function copied(
  { dir, layers }: ImageLayers,
  mounted: string,
  into: string,
  user: HostUser,
  signal: AbortSignal | undefined,
): Promise<number> {
  await mkdir(mounted, { mode: 0o700 });
  const paths = await Promise.all(layers.map((layer) => realpath(join(dir, layer))));
  const folders = paths.map((path) => Descriptor.name(path, true).reopenFolder());
  try {
    const isMounted = folders.length > 1;
    if (isMounted) {
      using place = Descriptor.name(mounted, true).reopenFolder();
      if (!(await mountLayers(place, folders, null)))
        throw new CannotStage("its layers cannot be laid over each other here");
    }
    try {
      const [only] = folders;
      using from = isMounted || only === undefined ? Descriptor.name(mounted, true).reopenFolder() : only.again();
      using to = Descriptor.name(into, true).reopenFolder();
      const unwanted = (names: readonly string[]): boolean => !ROOT_FOLDERS.includes(names[0] ?? "");
      const tree = await readBaseTree(from, { only: null, shows: () => true, isClosed: unwanted, signal });
      let bytes = 0;
      for (const node of nodesOf(tree)) bytes += node.facts?.type === "file" ? node.facts.size : 0;
      await copyTree(from, to, tree, { owner: user, signal });
      await addNames(to, join(into, "etc"), user);
      return bytes;
    } finally {
      if (isMounted) await detachMount(mounted);
    }
  } finally {
    for (const folder of folders) folder[Symbol.dispose]();
  }
}

function* nodesOf(
  tree: Awaited<ReturnType<typeof readBaseTree>>,
): Generator<{ readonly facts: { type: string; size: number } | null }> {
  for (const node of tree.values()) {
    yield node;
    if (node.children !== null) yield* nodesOf(node.children);
  }
}

/**
 * The files over which every cell has mounts; a name for the user, since many programs do not work for a number without one; and what lets
 * `dpkg` work for another user than root, whose files the whole root is.
 */
async function addNames(tree: Descriptor, etc: string, { uid, gid }: HostUser): Promise<void> {
  makeFolders(tree, ["etc"]);
  using folder = Descriptor.name(etc, true).reopenFolder();
  // An image may have anything there.
  const put = async (name: string, text: string): Promise<void> => {
    await rm(folder.path(name), { recursive: true, force: true });
    await writeFile(folder.path(name), text, { flag: "wx", mode: 0o644 });
  };
  for (const name of NAME_FILES) if (!rawStat(folder, rawNameOf(name))?.isFile()) await put(name, "");
  if (makeFolders(folder, ["dpkg", "dpkg.cfg.d"], tree)) await put("dpkg/dpkg.cfg.d/corral-root", "force-not-root\n");
  for (const [file, id, rest] of [
    ["passwd", uid, `${gid}::/home/worker:/bin/sh`],
    ["group", gid, ""],
  ] as const) {
    if (!rawStat(folder, rawNameOf(file))?.isFile()) continue;
    const text = await readFile(folder.path(file), "latin1");
    if (text.split("\n").some((line) => line.split(":")[2] === String(id))) continue;
    appendFileSync(folder.path(file), `${/[^\n]$/.test(text) ? "\n" : ""}worker-${id}:x:${id}:${rest}\n`);
  }
}
