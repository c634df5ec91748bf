import { createHash } from "node:crypto";
import fs, { constants } from "node:fs";
import type { WorkerDefinition } from "../../declarations/worker/worker.ts";
import { contentOf } from "../../files/host/content.ts";
import { pinned } from "../../files/host/descriptor.ts";
import { sha256 } from "../../platform/sha256.ts";
import type { RunEnvironment } from "../../run/model/environment.ts";
import { type Attachment, type Job, type Narrow, rootJob } from "../../run/model/job.ts";
import { checkRead, hostPathOf, parsePathIn } from "../../sandbox/access.ts";
import type { Sandbox } from "../../sandbox/sandbox.ts";
import { ROOT } from "../../sandbox/virtual-path.ts";
import { present } from "../../text/present.ts";
import type { ItemAttachment, ItemRequest, ItemTemplate, ManifestItem, Reuse } from "../model/item.ts";

const CHUNK_BYTES = 1024 * 1024;

/** True if a template has `{hash}` or `{hash:N}`: only then files are read. */
export function usesHash(template: ItemTemplate): boolean {
  return /\{\s*hash(:\d+)?\s*\}/.test(JSON.stringify(template));
}

/** The SHA-256 of a file's content; of any other item, of its record as JSON with sorted keys and without spaces. */
export async function hashOf({ file, record }: ManifestItem): Promise<NonNullable<ManifestItem["hash"]>> {
  if (file !== undefined) return await fileHash(file);
  try {
    return { ok: true, value: sha256(JSON.stringify(record, sorted)) };
  } catch {
    return { ok: false, fault: "the item has no `hash`: it is not JSON" };
  }
}

/** No link is followed: a worker may have planted one since the file was found. */
async function fileHash(path: string): Promise<NonNullable<ManifestItem["hash"]>> {
  const unreadable = {
    ok: false,
    fault: "the file has no `hash`: it cannot be read, or it is no regular file",
  } as const;
  using found = pinned(path);
  if (found === null || !found.stat().isFile()) return unreadable;
  try {
    using file = found.reopen(constants.O_RDONLY);
    const content = contentOf(file);
    const hash = createHash("sha256");
    for (let at = 0; at < content.size; ) {
      const chunk = await content.read(at, CHUNK_BYTES);
      if (chunk.length === 0) break;
      at += chunk.length;
      hash.update(chunk);
    }
    return { ok: true, value: hash.digest("hex") };
  } catch (error) {
    if (!(error instanceof Error && "syscall" in error)) throw error;
    return unreadable;
  }
}

function sorted(_: string, value: unknown): unknown {
  if (typeof value !== "object" || value === null || Array.isArray(value)) return value;
  return Object.fromEntries(Object.entries(value).toSorted(([a], [b]) => (a < b ? -1 : 1)));
}

/** The parts of a job that all items of a fleet share. */
export interface FleetJob {
  readonly worker: WorkerDefinition;
  /** The project's sandbox, under the fleet's policy: the caller of every item. */
  readonly caller: Sandbox;
  /** What the worker may do in this fleet: every item may do less. */
  readonly sandbox: Sandbox;
  /** What an item reads that names only what it writes. In a shared cell this cannot be the rest of what the fleet writes. */
  readonly reads: readonly string[];
  readonly env: RunEnvironment;
  /** The items are those of another machine: a path of theirs names no file of this host. Absent: this one's. */
  readonly isElsewhere?: true;
  /** The database that has the fleet. Absent: the journal of this machine. */
  readonly database?: string;
}

/** What every item of the fleet can read, in its own cell or in one that it shares. `fleet`: the sandbox of its worker. */
export function readByAll({ mounts }: Sandbox, reuse: Reuse): string[] {
  if (reuse === "scrubbed") return mounts.filter(({ mode }) => mode === "ro").map(({ path }) => path);
  return mounts.length === 0 ? [] : [ROOT];
}

/** One item as a job: the fleet's worker, narrowed to the paths that this item may access. */
export function itemJob(
  { worker, caller, sandbox, reads, env, isElsewhere, database }: FleetJob,
  item: ItemRequest,
  {
    run,
    fleet,
    signal,
    turn,
    begin,
    reading,
  }: Pick<Job, "run" | "signal" | "begin" | "reading"> & { readonly fleet: string; readonly turn: () => Promise<void> },
): Job {
  const attachments = item.attachments.map(
    ({ name, path, sent }): Attachment => ({
      name,
      host: attachedHost(path, caller, isElsewhere === true),
      asked: path,
      ...present({ sent }),
    }),
  );
  const asked = { run, worker, callerSandbox: caller, signal, attachments, input: item.input };
  return {
    ...rootJob(asked, env.project.delegation),
    narrow: narrowOf(item, reads),
    makesBelow: sandbox,
    turn,
    ...present({ begin, reading }),
    fleet: { id: fleet, item: item.index, key: item.key, ...present({ store: database }) },
  };
}

/** The paths to write narrow only writing: reading stays as it is, unless the item says what it reads too. */
function narrowOf({ allowRead, allowWrite }: ItemRequest, reads: readonly string[]): Narrow | null {
  if (allowWrite === undefined) return allowRead === undefined ? null : { allowRead };
  return { allowRead: allowRead ?? [...reads, ...allowWrite], allowWrite };
}

/**
 * Where an attachment of an item is: on the host, or else in the project. The run opens it without following links, and refuses the
 * item if it is not a regular file. `isElsewhere`: the path is another machine's word, so it names nothing but a file of the sandbox.
 */
export function attachedHost(path: ItemAttachment["path"], caller: Sandbox, isElsewhere: boolean): string {
  if (!isElsewhere && isThere(path)) return path;
  const parsed = parsePathIn(caller, path);
  const readable = parsed.ok && checkRead(caller, parsed.path) === null;
  return (readable ? hostPathOf(caller, parsed.path) : null) ?? (isElsewhere ? "" : path);
}

function isThere(path: string): boolean {
  try {
    return fs.lstatSync(path, { throwIfNoEntry: false }) !== undefined;
  } catch {
    return false;
  }
}

/** Items of which the first were already read, so that what is wrong from the first on is known before anything is kept. */
export interface BegunItems<Item> extends AsyncDisposable {
  readonly first: readonly Item[];
  /** All of them. */
  readonly items: AsyncIterable<Item>;
}

export async function begunItems<Item>(items: AsyncIterable<Item>, count: number): Promise<BegunItems<Item>> {
  const iterator = items[Symbol.asyncIterator]();
  const first: Item[] = [];
  while (first.length < count) {
    const next = await iterator.next();
    if (next.done) break;
    first.push(next.value);
  }
  return {
    first,
    items: (async function* () {
      yield* first;
      for (let next = await iterator.next(); !next.done; next = await iterator.next()) yield next.value;
    })(),
    async [Symbol.asyncDispose]() {
      await iterator.return?.();
    },
  };
}
