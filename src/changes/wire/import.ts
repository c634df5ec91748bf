import { mkdir } from "node:fs/promises";
import { join } from "node:path";
import { type BlobStore, type Digest, wholeBlob } from "../../blobs/model/blob.ts";
import { removeTree } from "../../files/host/remove-tree.ts";
import { asksForHostExecuted } from "../../sandbox/host-executed.ts";
import type { SecretSearch } from "../../secrets/secret-search.ts";
import { Agreed } from "../agreed.ts";
import { OpenMounts } from "../apply/open-mounts.ts";
import { type ChangesOf, type Collected, Collecting } from "../collect.ts";
import type { Change, EntryFacts } from "../model/changeset.ts";
import type { Draft } from "../scan/draft.ts";
import { withoutSecrets } from "../without-secrets.ts";
import { baseAtHome } from "./base.ts";
import { MAX_DOCUMENT_BYTES, parseWire, type WireChange, type WireEntry } from "./document.ts";
import { fetchContent } from "./fetch.ts";
import { type HomeMount, type HomeSandbox, homeMountOf } from "./home-mounts.ts";

export interface ImportRequest {
  /** The document that a machine delivered. */
  readonly digest: Digest;
  readonly store: BlobStore;
  /** The item's sandbox, derived here. */
  readonly home: HomeSandbox;
  /** A directory to make, on the file system of the changesets: it receives the content. */
  readonly dir: string;
  /** The bytes that the run may write in all. */
  readonly maxBytes: number;
  /** The run, as this machine knows it. */
  readonly of: ChangesOf;
  /** Makes searches for secrets: changes that contain one are refused. */
  readonly search?: (() => SecretSearch) | null;
  readonly signal?: AbortSignal;
}

/**
 * The changes that a run on another machine made, as if it had run here: judged by the same rules, compared with what is there now,
 * and with their content in `dir`. Null if there are none. Disposing removes what is left of the content.
 *
 * The machine's word counts for nothing: which directories receive changes, what is closed in them and what needs approval comes from
 * `home`. Rejects with `WireRefused` or `BlobRefused` if the machine has delivered what no item of this sandbox can, or what does
 * not match its digest; nothing is left then. Throws `TooManyChanges` as a scan does.
 */
export async function importChangeset(request: ImportRequest): Promise<(Collected & AsyncDisposable) | null> {
  const { digest, store, home, dir, search, signal } = request;
  const { mounts } = parseWire(await wholeBlob(store, digest, MAX_DOCUMENT_BYTES, signal));
  const places = mounts.map((mount) => ({ place: homeMountOf(mount, home), changes: mount.changes }));
  const judged = await judgedAtHome(places, request);
  if (judged === null) return null;
  const remove = (): Promise<void> => removeTree(dir);
  await mkdir(dir, { mode: 0o700 });
  try {
    for (const { content } of judged.collected.changeset.mounts) await mkdir(content, { mode: 0o700 });
    const { changeset, ...rest } = judged.collected;
    const changes: Change[] = [];
    for (const change of changeset.changes)
      changes.push(await fetchContent(change, judged.sources.get(keyOf(change)) ?? null, changeset, store, signal));
    const brought = new Map(changes.map((change) => [change.index, change]));
    const asBrought = (some: readonly Change[]) => some.flatMap(({ index }) => brought.get(index) ?? []);
    const collected: Collected = {
      changeset: { ...changeset, changes },
      toAsk: asBrought(rest.toAsk),
      leftToCallers: asBrought(rest.leftToCallers),
    };
    const clean = search ? await withoutSecrets(collected, search, signal) : collected;
    return { ...clean, [Symbol.asyncDispose]: remove };
  } catch (error) {
    await remove();
    throw error;
  }
}

interface PlacedChanges {
  readonly place: HomeMount;
  readonly changes: readonly WireChange[];
}

/** Everything is judged before any content is written. `sources`: what files have to be, by {@link keyOf}. */
async function judgedAtHome(
  places: readonly PlacedChanges[],
  { dir, maxBytes, of, home, signal }: ImportRequest,
): Promise<{ collected: Collected; sources: ReadonlyMap<string, WireEntry> } | null> {
  const changed = places.map(({ place }, index) => ({ ...place.changed, content: join(dir, String(index)) }));
  using mounts = new OpenMounts({ mounts: changed });
  const collecting = new Collecting(new Agreed(), maxBytes);
  const sources = new Map<string, WireEntry>();
  for (const [index, { place, changes }] of places.entries()) {
    const created = new Set(changes.filter(({ kind }) => kind === "create").map(({ names }) => names.join("/")));
    const drafts: Draft[] = [];
    for (const change of changes) {
      signal?.throwIfAborted();
      const draft = await draftOf(change, place, index, mounts, signal);
      drafts.push({ ...draft, givesWay: change.kind === "delete" && givesWay(change, created) });
    }
    const target = changed[index];
    if (target === undefined) continue;
    collecting.add(drafts, place, target);
    for (const { names, next, refusal } of changes)
      if (next !== null && refusal === null) sources.set(`${index}:${names.join("/")}`, next);
  }
  const collected = collecting.end(asksForHostExecuted(home.sandbox) ? of : { ...of, hostExecuted: "allow" });
  return collected === null ? null : { collected, sources };
}

async function draftOf(
  change: WireChange,
  place: HomeMount,
  mount: number,
  mounts: OpenMounts,
  signal: AbortSignal | undefined,
): Promise<Draft> {
  const { names, kind, type, next, refusal } = change;
  const { base, overHidden } = await baseAtHome(change, place, mount, mounts, signal);
  return {
    names,
    kind,
    type,
    base,
    next: next === null ? null : claimed(next),
    ...(next?.target == null ? {} : { linkText: next.target }),
    ...(overHidden ? { overHidden } : {}),
    ...(refusal === null ? {} : { refusal }),
  };
}

/** As the machine says; the real facts are those of the content, once it is here. */
function claimed({ type, mode, bytes }: WireEntry): EntryFacts {
  return { type, mode, size: bytes, inode: "0", mtimeNs: "0", ctimeNs: "0" };
}

/** True for what is at or below a path that the run has made anew. */
function givesWay({ names }: WireChange, created: ReadonlySet<string>): boolean {
  return names.some((_, index) => created.has(names.slice(0, index + 1).join("/")));
}

/** Only of changes that are not refused, whose names are UTF-8. */
function keyOf({ mount, parts }: Change): string {
  return `${mount}:${Buffer.from(parts.join("/")).toString("latin1")}`;
}
