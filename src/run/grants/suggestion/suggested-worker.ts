import { type Document, isMap, isSeq } from "yaml";
import { governingMount } from "../../../sandbox/access.ts";
import type { Mount } from "../../../sandbox/mount.ts";
import { covers, type VirtualPath } from "../../../sandbox/virtual-path.ts";
import type { GrantRecord, Mode } from "../../model/grant.ts";
import { put, textsAt } from "./edited-yaml.ts";
import { freeName, hostText, type ProjectAdditions, placeText, WITHOUT_QUESTION } from "./suggested-project.ts";

/** A directory that a worker turned out to need. */
export interface Wanted {
  readonly directory: VirtualPath;
  readonly host: string;
  /** The project's mount in which it lies, by name; null: it is a directory of the host. */
  readonly mount: string | null;
  readonly mode: Mode;
}

/** What one worker was granted, without what another of its grants holds already. */
export function wantedBy(worker: string, grants: readonly GrantRecord[]): Wanted[] {
  const all = grants.flatMap((grant) => ("directory" in grant && grant.granted.includes(worker) ? grant : []));
  const wanted = new Map<string, Wanted>();
  for (const { directory, host, mount, mode } of all) {
    const known = wanted.get(directory);
    if (known?.mode === "write") continue;
    wanted.set(directory, { directory: directory as VirtualPath, host, mount, mode });
  }
  return [...wanted.values()].filter(
    (one) => ![...wanted.values()].some((other) => other !== one && holds(other, one)),
  );
}

function holds(outer: Wanted, inner: Wanted): boolean {
  return covers(outer.directory, inner.directory) && (outer.mode === "write" || inner.mode === "read");
}

export interface WorkerContext {
  readonly dir: string;
  /** What the project gives, by name. */
  readonly mounts: readonly Mount[];
  readonly additions: ProjectAdditions;
}

/**
 * Changes a worker's declaration so that it has what it was granted, in the form in which it already declares files.
 * Returns what that form has no place for.
 */
export function declareIn(document: Document, wanted: readonly Wanted[], context: WorkerContext): Wanted[] {
  const has = (key: string): boolean => document.hasIn(["sandbox", key]);
  if (has("paths")) return asPaths(document, wanted, context);
  if (has("zones")) return asZones(document, wanted, context);
  if (has("inherit") || has("allow_read") || has("allow_write")) return asLists(document, wanted, context);
  // Under the project's names nothing moves. What the project cannot give can only be a path of the worker's own.
  const isGiven = wanted.every(({ mount }) => mount !== null) || !context.additions.leavesPathsToWorkers;
  return isGiven ? asLists(document, wanted, context) : asPaths(document, wanted, context);
}

/** The project is the ceiling of a worker's own paths, so it must have what it does not give yet. */
function asPaths(document: Document, wanted: readonly Wanted[], { dir, additions }: WorkerContext): Wanted[] {
  const paths = document.getIn(["sandbox", "paths"]);
  const known = isMap(paths) ? (paths.toJS(document) as Record<string, { readonly at?: unknown }>) : {};
  const names = Object.keys(known);
  const left: Wanted[] = [];
  for (const want of wanted) {
    const { host, mount, mode, directory } = want;
    if (mount === null && !additions.leavesPathsToWorkers && additions.nameFor(want) === null) {
      left.push(want);
      continue;
    }
    const same = names.find((name) => (known[name]?.at ?? `/${name}`) === directory);
    if (same !== undefined) {
      if (mode === "write") makeWritable(document, ["sandbox", "paths", same]);
      continue;
    }
    const name = freeName(host, names);
    names.push(name);
    const entry = { root: hostText(dir, host), ...placeText(name, directory) };
    const writable = { ...entry, mode: "rw", approval: WITHOUT_QUESTION };
    put(document, ["sandbox", "paths", name], mode === "write" ? writable : entry);
  }
  return left;
}

function makeWritable(document: Document, at: readonly string[]): void {
  put(document, [...at, "mode"], "rw");
  if (!document.hasIn([...at, "approval"])) put(document, [...at, "approval"], WITHOUT_QUESTION);
}

/** A zone is given as a whole, even if only a folder of it was granted. */
function asZones(document: Document, wanted: readonly Wanted[], { mounts, additions }: WorkerContext): Wanted[] {
  const left: Wanted[] = [];
  for (const want of wanted) {
    const name = want.mount ?? additions.nameFor(want);
    if (name === null) left.push(want);
    else
      addZone(
        document,
        name,
        want.mode,
        mounts.find((mount) => mount.name === name),
      );
  }
  return left;
}

function addZone(document: Document, name: string, mode: Wanted["mode"], mount: Mount | undefined): void {
  const zones = document.getIn(["sandbox", "zones"]);
  if (!isSeq(zones)) return;
  const written = zones.toJS(document) as readonly { readonly name?: unknown; readonly mode?: unknown }[];
  const at = written.findIndex((zone) => zone.name === name);
  // Where the project asks for more agreement, a worker cannot do with less.
  const said = mount?.approval?.write;
  const approval = said === undefined || said === "pre_approved" ? { approval: WITHOUT_QUESTION } : {};
  const writable = { mode: "rw", ...approval };
  if (at < 0) zones.add(document.createNode({ name, ...(mode === "write" ? writable : {}) }, { flow: true }));
  else if (mode === "write" && written[at]?.mode !== "rw")
    zones.set(at, document.createNode({ ...written[at], ...writable }, { flow: true }));
}

function asLists(document: Document, wanted: readonly Wanted[], { additions, mounts }: WorkerContext): Wanted[] {
  const at = { read: ["sandbox", "allow_read"], write: ["sandbox", "allow_write"] } as const;
  const had = { read: textsAt(document, at.read), write: textsAt(document, at.write) };
  const left: Wanted[] = [];
  const reads: string[] = [];
  const writes: string[] = [];
  for (const want of wanted) {
    if (want.mount === null && additions.nameFor(want) === null) left.push(want);
    else (want.mode === "write" ? writes : reads).push(want.directory);
  }
  // With `inherit` alone everything that the project gives is there.
  if (document.hasIn(["sandbox", "inherit"]) && had.read === null && had.write === null) return left;
  const allWrites = together(had.write ?? [], writes);
  const allReads = together(had.read ?? had.write ?? [], reads, writes);
  if (writes.length > 0) put(document, at.write, allWrites);
  const asks = writes.some((path) => asksToWrite(path as VirtualPath, mounts));
  // A consent of the worker's own is for everything that it writes: not for what it could write before.
  if (writes.length > 0 && had.write === null && !asks && !document.hasIn(["sandbox", "approval"]))
    put(document, ["sandbox", "approval"], WITHOUT_QUESTION);
  // One list of what is written says what is read as well, for as long as that is the same.
  if ((had.read !== null || reads.length > 0) && reads.length + writes.length > 0) put(document, at.read, allReads);
  return left;
}

/** Where the project asks for agreement, a worker cannot do with less. */
function asksToWrite(path: VirtualPath, mounts: readonly Mount[]): boolean {
  const said = governingMount({ mounts }, path)?.approval?.write;
  return said !== undefined && said !== "pre_approved";
}

function together(...lists: readonly (readonly string[])[]): string[] {
  return [...new Set(lists.flat())];
}
