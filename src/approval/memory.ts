import { globMatcher } from "../platform/globs.ts";
import { parseVirtualPath, ROOT, type VirtualPath } from "../sandbox/virtual-path.ts";
import {
  type ApprovalOperation,
  type ApprovalRequest,
  type ApprovalScope,
  isGrant,
  isHostExecuted,
} from "./approver.ts";

export interface PathGlob {
  /** True for a path that the glob matches exactly. The narrow reading, for rules that approve. */
  matches(path: string): boolean;
  /** Also true for a path below a match, or above a possible match. The wide reading, for rules that deny. */
  touches(path: string): boolean;
}

/** `*` matches any part of a name, `?` one character, `**` as a whole name any directories. All else is literal. */
export function parsePathGlob(glob: string): PathGlob {
  const names = partsOf(glob);
  const whole = names.length === 0 ? () => false : globMatcher(names.map(literally).join("/"), OPTIONS);
  const single = names.map(parseNameGlob);
  const isRoot = names.every((name) => name === "**");
  return {
    matches: (path) => (path === "/" ? isRoot : whole(path.slice(1))),
    touches(path) {
      for (const [index, part] of partsOf(path).entries()) {
        if (index >= names.length || names[index] === "**") return true;
        if (single[index]?.(part) !== true) return false;
      }
      return true;
    },
  };
}

/** A glob for a single name, such as a worker's. */
export function parseNameGlob(glob: string): (name: string) => boolean {
  return globMatcher(literally(glob), OPTIONS);
}

const OPTIONS = { dot: true };

function literally(glob: string): string {
  // In brackets: picomatch reads several backslashes in a row as one.
  return glob.replaceAll(/[^\p{L}\p{N}*?/ _.-]/gu, (found) => (found === "\\" ? "[\\\\]" : `\\${found}`));
}

function partsOf(path: string): string[] {
  return path.split("/").filter((part) => part !== "");
}

/** A path of a request in canonical form; null if it is not canonical, because it could then mean another path than it shows. */
export function checkedPath(raw: string): VirtualPath | null {
  const parsed = parseVirtualPath(raw);
  return parsed.ok && parsed.path === raw ? parsed.path : null;
}

const MAX_REMEMBERED = 10_000;
/** Approvals for deeper paths are not remembered, which bounds the look-ups for one path. */
const MAX_DEPTH = 64;

/** A request without the run that it comes from. */
export type ConsentSubject = Omit<ApprovalRequest, "run" | "root">;

/** The subject of one remembered approval. */
export interface Lasting {
  readonly operation: ApprovalOperation;
  /** `below`: everything below the directory `at`. `path`: only that path. `command`, `worker`, `host`: exactly that one. */
  readonly kind: "below" | "path" | "command" | "worker" | "host";
  readonly at: string;
}

/**
 * Approvals for a tree of runs or for the session, by worker, operation and directory. Denials cannot be stored.
 */
export class ApprovalMemory {
  readonly #approved = new Set<string>();

  /** Keeps nothing for requests that must be asked each time, or if the memory is full. */
  remember(request: ApprovalRequest, scope: Exclude<ApprovalScope, "once">): void {
    const lasting = lastingOf(request);
    if (lasting === null || this.#approved.size + lasting.length > MAX_REMEMBERED) return;
    for (const one of lasting) this.#approved.add(keyOf(request, scope, one));
  }

  /** The scope under which every part of a request is already approved; null if any part is not. */
  scopeOf(request: ApprovalRequest): Exclude<ApprovalScope, "once"> | null {
    const lasting = isHostExecuted(request) ? null : lastingOf(request);
    if (lasting === null) return null;
    if (lasting.every((one) => this.#has(request, "session", one))) return "session";
    return lasting.every((one) => this.#has(request, "session", one) || this.#has(request, "tree", one))
      ? "tree"
      : null;
  }

  #has(request: ApprovalRequest, scope: "tree" | "session", lasting: Lasting): boolean {
    const places = lasting.kind === "below" ? withAncestors(lasting.at) : [lasting.at];
    return places.some((at) => this.#approved.has(keyOf(request, scope, { ...lasting, at })));
  }
}

/**
 * The subjects for which an approval of this request is remembered; null if it must be asked each time. An approval for a
 * file covers the file's directory, but never `/`; a grant covers the requested directory, or exactly that host. A push is never remembered,
 * nor a change to what the host executes.
 */
export function lastingOf(request: ConsentSubject): readonly Lasting[] | null {
  if (isHostExecuted(request) && !request.operations.every(isGrant)) return null;
  const each = [...new Set(request.operations)].map((operation) => lastingOfOne(operation, request));
  if (each.length === 0 || each.includes(null)) return null;
  return each.flatMap((lasting) => lasting ?? []);
}

/** True if a request may be approved once. */
export function mayBeOnce(request: Pick<ApprovalRequest, "lastingOnly"> & ConsentSubject): boolean {
  return request.lastingOnly !== true || lastingOf(request) === null;
}

function lastingOfOne(operation: ApprovalOperation, asked: ConsentSubject): readonly Lasting[] | null {
  if (operation === "push") return null;
  if (operation === "exec") {
    const { command, paths } = asked;
    if (command === undefined) return null;
    return [{ operation, kind: "command", at: JSON.stringify([command, ...paths.toSorted()]) }];
  }
  if (operation === "call")
    return asked.callee === undefined ? null : [{ operation, kind: "worker", at: asked.callee }];
  if (operation === "grant_network") return asked.to === undefined ? null : [{ operation, kind: "host", at: asked.to }];
  if (isGrant(operation) || operation === "read") {
    const named = operation === "read" ? asked.paths[0] : asked.directory;
    const directory =
      named === undefined || (operation === "read" && asked.paths.length > 1) ? null : checkedPath(named);
    if (directory === null || (directory === ROOT && operation !== "read") || isTooDeep(directory)) return null;
    return [{ operation, kind: "below", at: directory }];
  }
  const lasting = new Map<string, Lasting>();
  for (const raw of asked.paths) {
    const path = checkedPath(raw);
    if (path === null || path === ROOT || isTooDeep(path)) return null;
    const parent = path.slice(0, path.lastIndexOf("/"));
    const one = parent === "" ? ({ kind: "path", at: path } as const) : ({ kind: "below", at: parent } as const);
    lasting.set(`${one.kind} ${one.at}`, { operation, ...one });
  }
  return lasting.size === 0 ? null : [...lasting.values()];
}

function keyOf(request: ApprovalRequest, scope: "tree" | "session", { operation, kind, at }: Lasting): string {
  const { root, worker, through } = request;
  // A directory or a host is also opened for every run above, so the same worker called through other workers is another question.
  const way = isGrant(operation) || operation === "read" ? (through ?? null) : null;
  return JSON.stringify([scope === "tree" ? root : null, worker, way, operation, kind, at]);
}

/** The directory and its ancestors, without `/`, which no approval covers. */
function withAncestors(directory: string): string[] {
  const parts = directory.split("/");
  return parts.slice(1).map((_, index) => parts.slice(0, index + 2).join("/"));
}

function isTooDeep(path: VirtualPath): boolean {
  return path.split("/").length - 1 > MAX_DEPTH;
}
