import { createHash, type Hash } from "node:crypto";
import fs from "node:fs";
import { type FileHandle, open } from "node:fs/promises";
import { dirname, join } from "node:path";
import { setImmediate as nextTurn } from "node:timers/promises";
import { type Descriptor, pinned } from "../../files/host/descriptor.ts";
import { codeOf } from "../../platform/errno.ts";
import { sha256 } from "../../platform/sha256.ts";
import type { Declared } from "../../run/model/environment.ts";
import type { Job } from "../../run/model/job.ts";
import { permissionOf } from "../../run/model/permission.ts";
import { hostPathOf, parsePathIn } from "../../sandbox/access.ts";
import { comesBack } from "../../sandbox/expand.ts";
import type { Mount } from "../../sandbox/mount.ts";
import type { Sandbox } from "../../sandbox/sandbox.ts";
import type { ItemResult } from "../model/item.ts";
import type { FleetStore } from "../model/store.ts";

/** The attachments of an item. */
export interface Attached {
  /** Names and content. */
  readonly digests: readonly (readonly [name: string, sha256: string])[];
  /** Changes with every change of one of the files. */
  readonly exact: string;
}

/** Null if one of them cannot be read, or the item is stopped before it was read. */
async function attachedTo({ attachments, signal }: Pick<Job, "attachments" | "signal">): Promise<Attached | null> {
  const digests: [string, string][] = [];
  const exact: string[] = [];
  for (const { name, host, sent } of attachments) {
    try {
      if (sent !== undefined) {
        digests.push([name, sent.digest]);
        continue;
      }
      await using file = await open(host, NO_LINK_NO_WAITING);
      const facts = await factsOf(file);
      exact.push(facts);
      digests.push([name, (await file.stat()).size > MAX_READ_BYTES ? facts : await contentOf(file, signal)]);
    } catch {
      return null;
    }
  }
  return { digests, exact: exact.join("\n") };
}

/** {@link Attached.exact} as it is now. */
async function exactlyAttached({ attachments }: Pick<Job, "attachments">): Promise<string | null> {
  const exact: string[] = [];
  for (const { host, sent } of attachments) {
    if (sent !== undefined) continue;
    try {
      await using file = await open(host, NO_LINK_NO_WAITING);
      exact.push(await factsOf(file));
    } catch {
      return null;
    }
  }
  return exact.join("\n");
}

async function factsOf(file: FileHandle): Promise<string> {
  const stats = await file.stat({ bigint: true });
  if (!stats.isFile()) throw new Error("no regular file");
  const { dev, ino, size, mtimeNs, ctimeNs } = stats;
  return `${dev} ${ino} ${size} ${mtimeNs} ${ctimeNs}`;
}

async function contentOf(file: FileHandle, signal: AbortSignal): Promise<string> {
  const hash = createHash("sha256");
  for await (const chunk of file.createReadStream({ autoClose: false, signal })) hash.update(chunk as Buffer);
  return hash.digest("hex");
}

/** A larger attachment, such as a sparse file of terabytes, is known as a large tree is: by device, inode, size and times. In docs/fleets.md. */
const MAX_READ_BYTES = 1024 ** 3;

/** A link is not followed, and a FIFO does not block. */
const NO_LINK_NO_WAITING = fs.constants.O_RDONLY | fs.constants.O_NOFOLLOW | fs.constants.O_NONBLOCK;

export interface FleetCacheParts {
  /** The fleet. */
  readonly id: string;
  /** Of what all items have in common apart from files, see `fleetDigest`. */
  readonly digest: string;
  readonly job: {
    /** What the worker may do in this fleet: every item may do less. */
    readonly sandbox: Sandbox;
    readonly env: Declared;
  };
  readonly store: FleetStore;
  readonly signal: AbortSignal;
  /** The labels of its machines: what machines with the same ones brought counts too. Null: it has none, and no result of a machine counts. */
  readonly needs: readonly string[] | null;
}

/** One item, as the cache knows it before it runs. */
export interface CacheEntry {
  /**
   * The keys under which an earlier success counts: all that the item depends on, and what it has written is still as it left it. The
   * first one is for what ran at home.
   */
  readonly keys: readonly string[];
  /** The key for the success of this item, once it has ended; null if what it reads has changed since. */
  keyAfter(): Promise<string | null>;
}

/** More folders that items write are not kept in memory: such a fleet is not cached. */
const MAX_OUTPUTS = 1_000_000;
/** Marks the key of an item until its fleet has ended, and what all items read is known to be unchanged. */
const UNCONFIRMED = "?";

/**
 * Finds results of earlier items that depend on the same. What an item can read is part of its key. A directory that all items
 * read is read once for the fleet, and compared again when the fleet ends: if it was changed, no result of the fleet counts.
 *
 * A machine's result is its word. Its key is another one, which only fleets with machines ask for.
 */
export class FleetCache {
  readonly #parts: FleetCacheParts;
  readonly #outputs: ExcludedPaths;
  /** Of the directories that all items read, by host path. */
  readonly #shared = new Map<string, Promise<TreeState | null>>();
  /** The directories that were read before machines got them, on the host. */
  readonly #sent = new Set<string>();

  /** Null if the folders that its items write are too many. */
  static async open(parts: FleetCacheParts): Promise<FleetCache | null> {
    const outputs = await outputsOf(parts);
    if (outputs === null) return null;
    // A process that ran this fleet before may have died before it confirmed them.
    await parts.store.endCacheKeys(parts.id, { mark: UNCONFIRMED, valid: false });
    return new FleetCache(parts, outputs);
  }

  private constructor(parts: FleetCacheParts, outputs: ExcludedPaths) {
    this.#parts = parts;
    this.#outputs = outputs;
  }

  /** Called before machines get the directories of the fleet. What they got is known if these are unchanged at the end of the fleet. */
  async beforeSending(): Promise<void> {
    for (const { host } of this.#parts.job.sandbox.mounts) {
      this.#sent.add(host);
      await this.#sharedState(host);
    }
  }

  /** The newest earlier success that counts; null if there is none. */
  async earlier({ keys }: CacheEntry): Promise<ItemResult | null> {
    for (const key of keys) {
      const found = await this.#parts.store.succeededBefore(key);
      if (found !== null) return found.result;
    }
    return null;
  }

  /** Null if it is not known what the item depends on: it runs, and its result does not count for others. */
  async entryOf(job: Job): Promise<CacheEntry | null> {
    const known = await this.#dependsOn(job);
    if (known === null) return null;
    const { inputs, written, attached, read } = known;
    const key = await this.#withOutputs(inputs, written);
    return {
      keys: [key, ...this.#keyOfMachines(key)],
      keyAfter: async () => {
        const isSame = (await exactlyAttached(job)) === attached.exact && (await read.isUnchanged());
        return isSame ? `${UNCONFIRMED}${await this.#withOutputs(inputs, written)}` : null;
      },
    };
  }

  /**
   * The key for the success of an item on a machine that had what this process sent, once its changes are applied. Null if the item could
   * read more than what was read before it was sent, such as what another item wrote.
   */
  async keyElsewhere(job: Job): Promise<string | null> {
    if (job.attachments.some(({ sent }) => sent === undefined)) return null;
    const known = await this.#dependsOn(job);
    if (known === null || !known.read.hosts.every((host) => this.#wasSentUnchanged(host))) return null;
    const [key] = this.#keyOfMachines(await this.#withOutputs(known.inputs, known.written));
    return key === undefined ? null : `${UNCONFIRMED}${key}`;
  }

  #keyOfMachines(key: string): string[] {
    const { needs } = this.#parts;
    return needs === null ? [] : [sha256(JSON.stringify(["machines", [...new Set(needs)].toSorted(), key]))];
  }

  /** In a directory that was read before, and is compared with that when the fleet ends. */
  #wasSentUnchanged(host: string): boolean {
    for (let at = host; !this.#outputs.has(at); at = dirname(at)) {
      if (this.#sent.has(at)) return true;
      if (at === dirname(at)) return false;
    }
    return false;
  }

  async #dependsOn(job: Job) {
    const { env } = this.#parts.job;
    const derivation = await permissionOf(job.worker, job.callerSandbox, job.narrow, env);
    if (!derivation.ok) return null;
    const { mounts } = derivation.sandbox;
    const written = mounts.filter(comesBack);
    // Without folders of its own it is not known which files are its output.
    if (written.length > 0 && job.narrow?.allowWrite === undefined) return null;
    const attached = await attachedTo(job);
    const read = await this.#read(mounts.filter((mount) => !comesBack(mount)));
    if (attached === null || read === null) return null;
    const inputs = sha256(
      JSON.stringify([this.#parts.digest, job.input ?? null, job.narrow, attached.digests, read.digests]),
    );
    return { inputs, written, attached, read };
  }

  /** The fleet runs no item any more: its results count from now on if what they all read is as it was when the fleet began. */
  async end(): Promise<void> {
    const { id, store } = this.#parts;
    let valid = true;
    for (const [host, begun] of this.#shared) {
      const state = await begun.catch(() => null);
      valid = valid && state !== null && state.exact === (await exactState(host, this.#outputs, NEVER));
    }
    await store.endCacheKeys(id, { mark: UNCONFIRMED, valid });
  }

  async #read(mounts: readonly Mount[]) {
    const { sandbox } = this.#parts.job;
    const digests: [path: string, mode: string, digest: string][] = [];
    const own: { host: string; exact: string }[] = [];
    for (const { path, host, mode } of mounts) {
      const isShared = sandbox.mounts.some((mount) => mount.host === host);
      const state = await (isShared ? this.#sharedState(host) : this.#stateOf(host));
      if (state === null) return null;
      digests.push([path, mode, state.digest]);
      if (!isShared) own.push({ host, exact: state.exact });
    }
    const isUnchanged = async (): Promise<boolean> => {
      for (const { host, exact } of own) {
        if ((await exactState(host, this.#outputs, this.#parts.signal)) !== exact) return false;
      }
      return true;
    };
    return { hosts: mounts.map(({ host }) => host), digests, isUnchanged };
  }

  #sharedState(host: string): Promise<TreeState | null> {
    const known = this.#shared.get(host) ?? this.#stateOf(host);
    this.#shared.set(host, known);
    return known;
  }

  #stateOf(host: string): Promise<TreeState | null> {
    return treeState(host, this.#outputs, this.#parts.signal);
  }

  async #withOutputs(inputs: string, written: readonly Mount[]): Promise<string> {
    const states: (string | null)[] = [];
    for (const { host } of written) states.push(await exactState(host, NONE_EXCLUDED, this.#parts.signal));
    return sha256(JSON.stringify([inputs, states]));
  }
}

/** The folders that items of this fleet write, on the host: each item's key has its own, and no other. */
async function outputsOf({ id, store, job: { sandbox } }: FleetCacheParts): Promise<ExcludedPaths | null> {
  const outputs = new Set<string>();
  const above = new Set<string>();
  for await (const path of store.writtenPaths(id)) {
    if (outputs.size >= MAX_OUTPUTS) return null;
    const parsed = parsePathIn(sandbox, path);
    const host = parsed.ok ? hostPathOf(sandbox, parsed.path) : null;
    if (host === null) continue;
    outputs.add(host);
    for (let at = dirname(host); !above.has(at); at = dirname(at)) above.add(at);
  }
  return { has: (host) => outputs.has(host), isAbove: (host) => above.has(host) };
}

const NEVER = new AbortController().signal;

/** What a directory or a file was at one moment. */
export interface TreeState {
  /** For cache keys: by content if the tree is small, else the same as {@link exact}. */
  readonly digest: string;
  /** Changes with every change, also one that is undone later: from devices, inodes, sizes and times. */
  readonly exact: string;
}

/** The host paths that are not part of a tree, with all that is below them. */
export interface ExcludedPaths {
  has(host: string): boolean;
  /** True for a directory above one of them: its own size and times do not count. */
  isAbove(host: string): boolean;
}

export const NONE_EXCLUDED: ExcludedPaths = { has: () => false, isAbove: () => false };

/** A tree up to this size is known by its content. Both limits are in docs/fleets.md. */
const MAX_SMALL_ENTRIES = 10_000;
const MAX_SMALL_BYTES = 64 * 1024 ** 2;
const MAX_ENTRIES = 1_000_000;
const MAX_DEPTH = 256;
/** After so many entries, or so many bytes, other work of the process gets a turn. */
const SLICE = 500;
const CHUNK_BYTES = 1024 ** 2;

/** Links are not followed. Null if there is nothing, or if it cannot be read to its end: what depends on it is not known then. */
export async function treeState(host: string, leftOut: ExcludedPaths, signal: AbortSignal): Promise<TreeState | null> {
  const exact = await walked(host, leftOut, signal, lineOf);
  if (exact === null) return null;
  const isSmall = exact.entries <= MAX_SMALL_ENTRIES && exact.bytes <= MAX_SMALL_BYTES;
  const content = isSmall ? await walked(host, leftOut, signal, entryContent) : exact;
  return content === null ? null : { exact: exact.digest, digest: content.digest };
}

/** Only {@link TreeState.exact}, without reading content. */
export async function exactState(host: string, leftOut: ExcludedPaths, signal: AbortSignal): Promise<string | null> {
  return (await walked(host, leftOut, signal, lineOf))?.digest ?? null;
}

interface Walked {
  readonly digest: string;
  readonly entries: number;
  readonly bytes: number;
}

interface Entry {
  /** The directory that it is in; null for the tree itself. */
  readonly folder: Descriptor;
  readonly name: Buffer;
  readonly stats: fs.BigIntStats;
  /** False for a directory that also holds what is left out. */
  readonly isWhole: boolean;
}

type Describe = (entry: Entry, hash: Hash) => Promise<void>;

async function walked(
  host: string,
  leftOut: ExcludedPaths,
  signal: AbortSignal,
  describe: Describe,
): Promise<Walked | null> {
  using root = pinned(host);
  if (root === null) return null;
  const walk = { hash: createHash("sha256"), entries: 0, bytes: 0 };
  const visit = async (entry: Entry, path: string, depth: number): Promise<boolean> => {
    walk.entries += 1;
    if (walk.entries > MAX_ENTRIES || depth > MAX_DEPTH) return false;
    if (walk.entries % SLICE === 0) {
      if (signal.aborted) return false;
      await nextTurn();
    }
    const { stats, folder, name } = entry;
    // The depth makes the sequence of names unambiguous.
    walk.hash.update(`${depth} ${name.length} `).update(name);
    if (stats.isFile()) walk.bytes += Number(stats.size);
    await describe(entry, walk.hash);
    if (!stats.isDirectory()) return true;
    using inner = name.length === 0 ? folder.again() : folder.child(name, true);
    for (const child of fs.readdirSync(inner.path(), { encoding: "buffer" }).sort(Buffer.compare)) {
      const at = join(path, child.toString());
      if (leftOut.has(at)) continue;
      const found = fs.lstatSync(inner.path(child), { bigint: true });
      const next = { folder: inner, name: child, stats: found, isWhole: !leftOut.isAbove(at) };
      if (!(await visit(next, at, depth + 1))) return false;
    }
    return true;
  };
  try {
    const stats = fs.fstatSync(root.fd, { bigint: true });
    const whole = await visit({ folder: root, name: Buffer.alloc(0), stats, isWhole: !leftOut.isAbove(host) }, host, 0);
    return whole ? { digest: walk.hash.digest("hex"), entries: walk.entries, bytes: walk.bytes } : null;
  } catch (error) {
    // It changes while it is read, or may not be read: its state is not known.
    if (codeOf(error) === undefined) throw error;
    return null;
  }
}

async function lineOf({ stats, isWhole }: Entry, hash: Hash): Promise<void> {
  const { dev, ino, mode, uid, gid, size, mtimeNs, ctimeNs } = stats;
  hash.update(` ${dev} ${ino} ${mode} ${uid} ${gid} ${isWhole ? `${size} ${mtimeNs} ${ctimeNs}` : ""}\n`);
}

async function entryContent({ folder, name, stats }: Entry, hash: Hash): Promise<void> {
  const { mode, uid, gid, size } = stats;
  hash.update(` ${mode} ${uid} ${gid} ${stats.isFile() ? size : ""}\n`);
  if (stats.isSymbolicLink()) {
    const text = fs.readlinkSync(folder.path(name), { encoding: "buffer" });
    hash.update(`${text.length} `).update(text);
  } else if (stats.isFile()) await fileContent(folder, name, hash);
}

/** The bytes of a regular file. If it grows meanwhile, its exact state differs at the end. */
async function fileContent(folder: Descriptor, name: Buffer, hash: Hash): Promise<void> {
  using named = name.length === 0 ? folder.again() : folder.child(name);
  if (!named.stat().isFile()) throw Object.assign(new Error("it is no longer a file"), { code: "EINVAL" });
  using file = named.reopen(fs.constants.O_RDONLY | fs.constants.O_NONBLOCK);
  const chunk = Buffer.alloc(Math.min(CHUNK_BYTES, named.stat().size + 1));
  for (let left = MAX_SMALL_BYTES + 1; left > 0; ) {
    const read = fs.readSync(file.fd, chunk, 0, Math.min(chunk.length, left), null);
    if (read === 0) return;
    hash.update(chunk.subarray(0, read));
    left -= read;
    if (read === CHUNK_BYTES) await nextTurn();
  }
  throw Object.assign(new Error("it grows while it is read"), { code: "EFBIG" });
}
