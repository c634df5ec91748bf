import posix from "node:path/posix";
import type { Approver, Decision } from "../../approval/approver.ts";
import { exposedOwnFiles } from "../../declarations/place/host-place.ts";
import type { Project } from "../../declarations/project.ts";
import type { WorkerDefinition } from "../../declarations/worker/worker.ts";
import type { RefusedSources } from "../../isolation/sources/refused-sources.ts";
import { accessOf, carve, governingMount, hostBelow, select } from "../../sandbox/access.ts";
import { consentOf, type Operation, strictest, strictOf } from "../../sandbox/approval.ts";
import { expand, meetConstraints, stagingOf } from "../../sandbox/expand.ts";
import { type Mount, originOf } from "../../sandbox/mount.ts";
import type { Sandbox } from "../../sandbox/sandbox.ts";
import { hidesHome, holds, isReserved, joinVirtual, type VirtualPath } from "../../sandbox/virtual-path.ts";
import type { GrantMode, GrantRecord, RunGrants } from "../model/grantee.ts";

/** One run of the chain that leads from the root to the run that asks. */
export interface Level {
  readonly worker: Pick<WorkerDefinition, "name" | "dynamic" | "needs">;
  /** What its tools act on, and what it hands on. */
  readonly sandbox: Sandbox;
  /** Its caller took something away for this one call. */
  readonly limited: boolean;
  /** The host folders in which it may be granted something; null: anywhere. */
  readonly within: readonly string[] | null;
  /** What it was granted so far. */
  readonly directories: ReadonlySet<VirtualPath>;
}

export interface Grounds {
  readonly project: Sandbox;
  /** Why a host directory is never shown to any worker, or null. */
  readonly refusalOf: (host: string) => string | null;
  /** Real paths of what says what workers may do. */
  readonly ownFiles: readonly string[];
}

export interface DirectoryRequest {
  readonly directory: VirtualPath;
  readonly mode: GrantMode;
}

export type Judgement =
  | {
      readonly ok: true;
      /** True if the worker already has it: no question is needed. */
      readonly had: boolean;
      /** The first of the chain that has to be granted it, and all after it; as many as the chain has: none. */
      readonly first: number;
      /** What the first is granted it from; the others have it from the one before. */
      readonly source: readonly Mount[];
      readonly host: string;
      /** The asking run's sandbox with it, for a single operation. */
      readonly preview: Sandbox;
    }
  | Refused;

/** What a path means to a chain of runs: the source that it would come from. */
export type Meaning =
  /** The project has it under this name. */
  | { readonly kind: "namespace"; readonly mount: Mount }
  /** A directory of the host, under the name that it has there; `mount` if some run already has it. */
  | { readonly kind: "host"; readonly mount: Mount | null }
  /** A path of a worker's own file: a name that the project does not know. */
  | { readonly kind: "own"; readonly mount: Mount };

/** The project's names come first, since a worker cannot choose those; then those of the runs, the nearest first. */
export function meaningOf(path: VirtualPath, chain: readonly Level[], { project }: Pick<Grounds, "project">): Meaning {
  const given = governingMount(project, path);
  const nearest = chain.toReversed().flatMap(({ sandbox }) => governingMount(sandbox, path) ?? [])[0];
  const isHost = nearest !== undefined && hostBelow({ ...nearest, host: originOf(nearest) }, path) === path;
  if (given !== undefined) return { kind: "namespace", mount: nearest ?? given };
  if (nearest === undefined || isHost) return { kind: "host", mount: nearest ?? null };
  return { kind: "own", mount: nearest };
}

/** Decides if a directory may be granted at all, and to which runs, before a person is asked. Pure. */
export function judgeGrant(request: DirectoryRequest, chain: readonly Level[], grounds: Grounds): Judgement {
  const { directory, mode } = request;
  const asking = chain.at(-1);
  if (asking === undefined) throw new RangeError("a chain has at least the run that asks");
  const had = grantIn(asking.sandbox, request);
  if (had !== null)
    return { ok: true, had: true, first: chain.length, source: [], host: had.host, preview: asking.sandbox };
  const origin = originFor(request, chain, grounds);
  if (origin === null) {
    const giver = mode === "write" ? "No caller of this worker can write there" : "No caller of this worker has it";
    return refuse("GRANT_NOT_ABOVE", request, `${giver}, and the project does not give it.`);
  }
  const { first, source } = origin;
  const top = governingMount({ mounts: source }, directory);
  const host = top === undefined ? directory : originOf(carve(top, directory));
  let above = source;
  let preview = asking.sandbox;
  for (const [index, level] of chain.entries()) {
    if (index < first) continue;
    const refused =
      refusalAt(level, index === chain.length - 1, request, host, grounds.project) ??
      refusedSource(request, host, grounds);
    if (refused !== null) return refused;
    preview = expand(level.sandbox, { id: "", path: directory, mode, by: "", source: above });
    if (exposes(preview, level.sandbox, grounds)) {
      const because = "It holds the project's own declarations, which no worker may write.";
      return refuse("GRANT_SOURCE_REFUSED", request, because, "Ask for a directory that does not hold them.");
    }
    above = select(preview, directory);
  }
  return whyWithout(preview, request) ?? { ok: true, had: false, first, source, host, preview };
}

/** The mount's place on the host, if the sandbox has what is asked for; else null. */
function grantIn(sandbox: Sandbox, { directory, mode }: DirectoryRequest): { readonly host: string } | null {
  const mount = governingMount(sandbox, directory);
  if (mount === undefined || (mode === "write" && (mount.mode !== "rw" || mount.approval?.write === "blocked")))
    return null;
  return { host: originOf(carve(mount, directory)) };
}

/** Its source: the nearest run above that has it, else the host, unless a run knows the place by another name. */
function originFor(
  { directory, mode }: DirectoryRequest,
  chain: readonly Level[],
  { project }: Grounds,
): { readonly first: number; readonly source: readonly Mount[] } | null {
  const meaning = meaningOf(directory, chain, { project });
  const has = (sandbox: Sandbox): boolean => {
    const access = accessOf(sandbox, directory);
    return access === "write" || access === mode;
  };
  for (const [index, { sandbox }] of [...chain.slice(0, -1).entries()].reverse()) {
    if (has(sandbox)) return { first: index + 1, source: select(sandbox, directory) };
  }
  if (meaning.kind === "namespace") {
    const given = asGrantable(project);
    return has(given) ? { first: 0, source: select(given, directory) } : null;
  }
  const root = chain[0] === undefined ? undefined : governingMount(chain[0].sandbox, directory);
  // Under a name of its own, a called worker's directory is its caller's under another one, and is asked for by that.
  if (meaning.kind === "own" && root === undefined) return null;
  const host = meaning.kind === "own" && root !== undefined ? originOf(carve(root, directory)) : directory;
  const sandboxes = chain.map(({ sandbox }) => sandbox);
  return { first: 0, source: hostSource(host, directory, project, sandboxes) };
}

/** Why this run of the chain cannot be granted it; every one that lacks it must allow it in its own file. */
function refusalAt(
  level: Level,
  isAsking: boolean,
  request: DirectoryRequest,
  host: string,
  project: Sandbox,
): Refused | null {
  const { worker, sandbox, limited, within, directories } = level;
  const { directory, mode } = request;
  const who = isAsking ? "This worker" : `The worker '${worker.name}', through which it would come,`;
  const no = (code: GrantRefusalCode, because: string, instead?: string): Refused =>
    refuse(code, request, because, instead);
  if (worker.dynamic === null)
    return no("GRANT_NOT_DYNAMIC", `${who} cannot be granted more than it declares: it has no \`dynamic\`.`);
  if (limited) return no("GRANT_LIMITED_CALL", `${who} was called with limits for this one call.`);
  if (mode === "write" && worker.needs.readonly === true)
    return no("GRANT_READONLY", `${who} declares \`readonly: true\`.`, "Read it, or write nothing.");
  if (within !== null && !within.some((folder) => holds(folder, host))) {
    const allowed = within.map((folder) => askedAs(folder, project)).slice(0, MAX_NAMED);
    const instead =
      allowed.length === 0
        ? "None of these folders exists."
        : `Ask for a directory at or below one of: ${allowed.join(", ")}.`;
    return no(
      "GRANT_OUTSIDE",
      `${who} may only be granted directories below the folders of its \`dynamic.within\`.`,
      instead,
    );
  }
  if (isReserved(directory, sandbox) || (host === directory && hidesHome(directory)))
    return no("GRANT_RESERVED", "That path is reserved for the container.", "Ask for a directory elsewhere.");
  const { max } = worker.dynamic;
  if (!directories.has(directory) && directories.size >= max)
    return no("GRANT_LIMIT", `${who} already has ${max} granted directories, which is its limit.`);
  return null;
}

/** The most folders that a refusal names. */
const MAX_NAMED = 20;

/** A host folder as a worker asks for it: by the project's name if the project has it. */
function askedAs(folder: string, { mounts }: Sandbox): string {
  const around = mounts.filter((mount) => holds(originOf(mount), folder));
  const [mount] = around.toSorted((a, b) => originOf(b).length - originOf(a).length);
  if (mount === undefined) return folder;
  return joinVirtual(mount.path, folder.slice(originOf(mount).length).replace(/^\//, ""));
}

function refusedSource(request: DirectoryRequest, host: string, grounds: Grounds): Refused | null {
  const reason = grounds.refusalOf(host);
  return reason === null
    ? null
    : refuse("GRANT_SOURCE_REFUSED", request, `This directory is never shown to a worker: ${reason}.`);
}

function exposes(preview: Sandbox, before: Sandbox, { ownFiles }: Grounds): boolean {
  return exposedOwnFiles(preview, ownFiles).length > exposedOwnFiles(before, ownFiles).length;
}

/** Why the grant would not give what was asked for, and so is not asked about. */
function whyWithout(preview: Sandbox, request: DirectoryRequest): Refused | null {
  if (grantIn(preview, request) !== null) return null;
  const mount = governingMount(preview, request.directory);
  if (mount?.mode === "rw")
    return refuse("GRANT_BLOCKED", request, "Writing is blocked there; no approval changes that.");
  const because =
    request.mode === "write" ? "The project gives it for reading only." : "No file there may be shown to it.";
  return refuse("GRANT_NOT_ABOVE", request, because);
}

/** Why a directory or a host is not granted. No person is asked then. */
export type GrantRefusalCode =
  | "GRANT_NOT_DYNAMIC"
  | "GRANT_LIMITED_CALL"
  | "GRANT_LIMITED_COMMAND"
  | "GRANT_READONLY"
  | "GRANT_OUTSIDE"
  | "GRANT_NOT_ABOVE"
  | "GRANT_LIMIT"
  | "GRANT_RESERVED"
  | "GRANT_SOURCE_REFUSED"
  | "GRANT_BLOCKED"
  | "GRANT_NO_DIRECTORY"
  | "GRANT_NO_HOST"
  | "GRANT_REVOKED"
  | "GRANT_FOR_ONE_OPERATION"
  | "APPROVAL_DENIED"
  | "APPROVAL_TIMED_OUT";

/** The text is for an LLM: virtual paths only, what failed, why, and what can be done instead. */
export interface GrantRefusal {
  readonly code: GrantRefusalCode;
  readonly message: string;
  /** The reason in it, for people. */
  readonly because: string;
}

export type Refused = { readonly ok: false; readonly refusal: GrantRefusal };

/** `because` and `instead` are whole sentences; the directory is as the worker would know it. */
export function refuse(
  code: GrantRefusalCode,
  asked: { readonly directory: string; readonly mode: GrantMode },
  because: string,
  instead = "Work with the directories that you have.",
): Refused {
  const what = asked.mode === "write" ? "Writing to" : "Reading";
  return {
    ok: false,
    refusal: { code, because, message: `${what} '${asked.directory}' was not granted. ${because} ${instead}` },
  };
}

/** The same for a host of the network. */
export function refuseHost(
  code: GrantRefusalCode,
  to: string,
  because: string,
  instead = "Work with the hosts that you have.",
): Refused {
  return { ok: false, refusal: { code, because, message: `Reaching '${to}' was not granted. ${because} ${instead}` } };
}

/** A path that a worker may not use, and what it would have to be able to do there. */
export interface GrantNeed {
  readonly path: VirtualPath;
  readonly mode: GrantMode;
  /** What it is for, in one sentence. */
  readonly why: string;
  /** The sandbox of the one operation so far, if it was granted something for itself alone. */
  readonly under?: Sandbox;
  /** No operation waits for it: an approval for one operation would be of no use. */
  readonly lastingOnly?: true;
}

/** All that granting needs of its surroundings. */
export interface GrantSurroundings {
  readonly project: Pick<Project, "dir" | "ownFiles">;
  readonly refusedSources: RefusedSources;
  /** Host directories in which some worker may have put a link. */
  readonly writableHosts: () => Promise<readonly string[]>;
  readonly approver: Approver;
  readonly ledger: RunGrants;
  /** Records every grant, once or for longer, before it is used; false: it could not, and nothing is granted. */
  readonly record: (record: GrantRecord) => Promise<boolean>;
  readonly newId: () => string;
  readonly now: () => Date;
}

export type GrantOutcome =
  | {
      readonly ok: true;
      readonly directory: VirtualPath;
      /** Null if the worker already had it: another of its operations asked at the same time. */
      readonly scope: "once" | "tree" | "session" | null;
      /** For the operation that asked. */
      readonly sandbox: Sandbox;
    }
  | Refused;

/* What every question for a directory has in common, whether the worker declares the directory or not. */

/** True if writes there are staged whatever is approved: a single operation has no view to write to. */
export function waitsOnSide(preview: Sandbox, directory: VirtualPath): boolean {
  const mount = governingMount(preview, directory);
  return mount?.view === undefined && (mount?.stage === true || mount?.discard === true);
}

export const NOT_RECORDED = "The grant could not be recorded in the audit trail, and nothing is granted unrecorded.";
export const NOT_FOR_ONE =
  "It was approved for one operation only, but writes there are staged until the end of the run.";

export function unapproved(
  asked: { readonly directory: VirtualPath; readonly mode: GrantMode },
  { outcome, reason }: Decision,
): Refused {
  if (outcome === "timed_out")
    return refuse("APPROVAL_TIMED_OUT", asked, "It needs approval, and no answer came in time.");
  return refuse("APPROVAL_DENIED", asked, `It needs approval, which was denied: ${reason}.`);
}

type Mounted = Pick<Sandbox, "mounts">;

/**
 * What a host directory is before it is granted: all of it, readable and writable, except for what is already said
 * about a place of it. A suffix, a size, a side or a block that holds under one name holds under every other, and what
 * the project only gives for reading stays so; of what workers have, the modes do not matter, for those are what is asked.
 */
function hostSource(host: string, at: VirtualPath, project: Mounted, workers: readonly Mounted[]): Mount[] {
  const known = [asGrantable(project), ...workers.map(withoutModes)];
  const places = known.flatMap(({ mounts }) => mounts.map(originOf)).filter((origin) => holds(host, origin));
  return [...new Set([host, ...places])].sort().map((place): Mount => {
    const path = joinVirtual(at, posix.relative(host, place));
    const plain: Mount = { name: at, path, host: place, mode: "rw" };
    return known.flatMap((sandbox) => innermost(sandbox, place)).reduce(met, plain);
  });
}

/** The project as far as its workers can be granted it. */
function asGrantable<Given extends Mounted>(project: Given): Given {
  const mounts = project.mounts.map((mount) => (mount.grantable ? { ...mount, mode: "rw" as const } : mount));
  return { ...project, mounts };
}

function withoutModes({ mounts }: Mounted): Mounted {
  return { mounts: mounts.map((mount) => ({ ...mount, mode: "rw" })) };
}

/** The mounts that say most closely what a host place is; several may show the same directory. */
function innermost({ mounts }: Mounted, place: string): Mount[] {
  const around = mounts.filter((mount) => holds(originOf(mount), place));
  const deepest = Math.max(...around.map((mount) => originOf(mount).length));
  return around.filter((mount) => originOf(mount).length === deepest);
}

function met(plain: Mount, said: Mount): Mount {
  const isBlocked = (operation: Operation): boolean =>
    [plain, said].some(({ approval }) => approval?.[operation] === "blocked");
  const blocked = (operation: Operation) => (isBlocked(operation) ? "blocked" : "ask");
  const call = strictest(consentOf(plain.approval, "call"), consentOf(said.approval, "call"));
  return {
    ...plain,
    ...meetConstraints(plain, said),
    ...stagingOf(plain, said),
    mode: said.mode === "ro" ? "ro" : plain.mode,
    approval: {
      ...strictOf({ ...(isBlocked("read") ? { read: "blocked" } : {}), call }),
      write: blocked("write"),
      delete: blocked("delete"),
    },
  };
}
