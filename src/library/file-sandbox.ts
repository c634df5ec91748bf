import { isAbsolute, normalize, resolve } from "node:path/posix";
import { directoryOf } from "../declarations/place/host-place.ts";
import { mountNameFault } from "../declarations/terms/names.ts";
import { guarded } from "../files/guarded.ts";
import { openHostFiles } from "../files/host/host-files.ts";
import { LINK_LEAVES, LinkLeavesError } from "../files/model/refusals.ts";
import {
  accessOf,
  checkConsent,
  checkRead,
  checkWrite,
  type FileFacts,
  hostPathOf,
  parsePathIn,
  readablePaths,
  writablePaths,
} from "../sandbox/access.ts";
import {
  mountFromRoot,
  mountsFromPaths,
  type NamedPlace,
  projectSandbox,
  type RootPlace,
  withinCeilings,
} from "../sandbox/declare.ts";
import { derive } from "../sandbox/derive.ts";
import { PathNotInSandboxError, type SandboxError } from "../sandbox/errors.ts";
import { everyLimit, type Limits } from "../sandbox/limits.ts";
import type { Access, Mount } from "../sandbox/mount.ts";
import { BASELINE, type Policy } from "../sandbox/policy.ts";
import type { Needs, Sandbox, ZoneNeed } from "../sandbox/sandbox.ts";
import type { Violation } from "../sandbox/violation.ts";
import type { VirtualPath } from "../sandbox/virtual-path.ts";
import { SandboxPermissionEscalationError } from "../sandbox/wording.ts";
import { present } from "../text/present.ts";
import {
  any,
  approvalMap,
  byteCount,
  checkKeys,
  type KeyChecks,
  limitMap,
  modeName,
  type NetworkRequest,
  networkOf,
  onlyTrue,
  pathList,
  policyObject,
  suffixList,
  text,
  trueOrFalse,
} from "./checked-request.ts";

/**
 * What a child asks of its parent. Paths are text, as a worker writes them: `/data/a`, `data/a`, `data:a`; each means
 * a directory, because the disk is not read.
 */
export interface DeriveRequest
  extends Omit<
    Needs,
    | "allowRead"
    | "allowWrite"
    | "workingDir"
    | "paths"
    | "inherit"
    | "readonly"
    | "network"
    | "secrets"
    | "writableRoot"
  > {
  /** Absent: the same as `allowWrite`. An empty list: the child reads nothing. */
  readonly allowRead?: string | readonly string[];
  /** Absent: if `allowRead` is given, the child writes nothing. What it may write must be readable too. */
  readonly allowWrite?: string | readonly string[];
  /** True: the child writes nothing. False: it needs to write, which is refused if the parent only reads. */
  readonly readonly?: boolean;
  /** True: everything that the parent has, if no list says less. Absent: only what is listed. */
  readonly inherit?: boolean;
  /** Absent: none. */
  readonly network?: NetworkRequest;
  /** The directory at which relative paths start; absent: `/`. */
  readonly workingDir?: string;
}

/**
 * A sandbox without a container or a project, to ask and to derive from. It never changes, and only `resolve` does I/O. A cell
 * under the same sandbox enforces the same answers.
 *
 * Every path is a virtual path, as text. A text that is no such path (`..` above `/`, a drive letter) is outside of every
 * sandbox.
 */
export class FileSandbox {
  /** The same as plain data, for `derive`, for `planFor` and to be stored. It contains host paths. */
  readonly data: Sandbox;

  constructor(data: Sandbox) {
    this.data = data;
  }

  /** The topmost paths that can be read. */
  get readableRoots(): readonly string[] {
    return readablePaths(this.data);
  }

  /** The topmost paths that can be written. */
  get writableRoots(): readonly string[] {
    return writablePaths(this.data);
  }

  /** What may be done at this path. Suffixes and sizes do not count here: see {@link checkRead} and {@link checkWrite}. */
  access(path: string): Access {
    const parsed = parsePathIn(this.data, path);
    return parsed.ok ? accessOf(this.data, parsed.path) : "none";
  }

  /** True if a file at this path may be read, as {@link checkRead} says. */
  canRead(path: string, facts: FileFacts = {}): boolean {
    return this.checkRead(path, facts) === null;
  }

  /** True if a file at this path may be written, perhaps after a question, as {@link checkWrite} says. */
  canWrite(path: string, facts: FileFacts = {}): boolean {
    return this.checkWrite(path, facts) === null;
  }

  /** Why this file may not be read, in words that a model can act on; null if it may. */
  checkRead(path: string, facts: FileFacts = {}): SandboxError | null {
    const parsed = parsePathIn(this.data, path);
    return parsed.ok ? checkRead(this.data, parsed.path, facts) : this.#outside(path, parsed.reason);
  }

  /** Why this file may not be written; null if it may. It does not say if the user must agree first. */
  checkWrite(path: string, facts: FileFacts = {}): SandboxError | null {
    const parsed = parsePathIn(this.data, path);
    if (!parsed.ok) return this.#outside(path, parsed.reason);
    return checkWrite(this.data, parsed.path, facts) ?? checkConsent(this.data, parsed.path, "write");
  }

  /**
   * The host path of a virtual path, which need not exist yet. It reads the disk: the result leads through no link, and a path
   * whose links leave their mount is refused. The answer is of this moment. While a worker may change the directory, read and
   * write with `openFiles`.
   *
   * @throws PathNotInSandboxError if the sandbox shows nothing there, or a link leads out of its mount.
   */
  async resolve(path: string): Promise<string> {
    using files = openHostFiles(this.data.mounts, { absoluteLinks: true });
    const real = await guarded(files, this.data)
      .realPath(path)
      .catch((error: unknown) => {
        throw withRoots(error, this.data);
      });
    const host = hostPathOf(this.data, real);
    if (host === null) throw new PathNotInSandboxError(path, this.readableRoots);
    return host;
  }

  /**
   * A child sandbox: at most what this one has, under the same paths. An empty request gives no files.
   *
   * `name`: the child's name in violations, also in those of its own children.
   *
   * @throws SandboxPermissionEscalationError with every violation, if it asks for more; RangeError for a key or a value
   *   that does not exist.
   */
  derive(request: DeriveRequest = {}, name = "child"): FileSandbox {
    return this.#derived(request, name, (path) => path);
  }

  /**
   * The same for what is on this host now: an entry of `allowRead` or `allowWrite` that is a file means its directory. It reads the disk, and
   * follows no link.
   */
  deriveOnDisk(request: DeriveRequest = {}, name = "child"): FileSandbox {
    return this.#derived(request, name, (path) => directoryOf(this.data, path));
  }

  #derived(request: DeriveRequest, name: string, meant: (path: VirtualPath) => VirtualPath): FileSandbox {
    checkKeys(request, DERIVE, "the request");
    for (const zone of request.zones ?? []) checkKeys(zone, ZONE, "a zone");
    const { allowRead, allowWrite, workingDir, network, ...rest } = request;
    const violations: Violation[] = [];
    const placed = (path: string): VirtualPath[] => {
      const parsed = parsePathIn(this.data, path);
      if (parsed.ok) return [parsed.path];
      const by = this.data.chain.at(-1) ?? "project";
      violations.push({ code: "PATH_NOT_AVAILABLE", asked: path, by, valid: readablePaths(this.data) });
      return [];
    };
    const needs: Needs = {
      ...rest,
      ...(network === undefined ? {} : { network: networkOf(network, "`network` of the request") }),
      ...(allowRead === undefined ? {} : { allowRead: [allowRead].flat().flatMap(placed).map(meant) }),
      ...(allowWrite === undefined ? {} : { allowWrite: [allowWrite].flat().flatMap(placed).map(meant) }),
    };
    const [base] = workingDir === undefined ? [] : placed(workingDir);
    const derivation = derive(this.data, base === undefined ? needs : { ...needs, workingDir: base }, name);
    if (!derivation.ok) violations.push(...derivation.violations);
    if (!derivation.ok || violations.length > 0) throw new SandboxPermissionEscalationError(violations);
    return new FileSandbox(derivation.sandbox);
  }

  #outside(path: string, reason: string): SandboxError {
    return new PathNotInSandboxError(path, this.readableRoots, reason);
  }
}

/** The refusal of a path that is outside, or leads there, with what can be read and written instead; any other error as it is. */
export function withRoots(error: unknown, sandbox: Sandbox): unknown {
  const isOutside = error instanceof PathNotInSandboxError;
  if (!isOutside && !(error instanceof LinkLeavesError)) return error;
  const reason = isOutside ? error.reason : LINK_LEAVES;
  const [readable, writable] = [readablePaths(sandbox), writablePaths(sandbox)];
  return new PathNotInSandboxError(error.path ?? "", readable, reason, writable);
}

const DERIVE: KeyChecks<DeriveRequest> = {
  allowRead: pathList,
  allowWrite: pathList,
  readonly: trueOrFalse,
  inherit: trueOrFalse,
  zones: any,
  suffixes: suffixList,
  maxFileBytes: byteCount,
  approval: approvalMap,
  stage: onlyTrue,
  discard: onlyTrue,
  workingDir: text,
  network: any,
  limits: limitMap,
  policy: policyObject,
};

const ZONE: KeyChecks<ZoneNeed> = {
  name: any,
  mode: modeName,
  approval: approvalMap,
  stage: onlyTrue,
  discard: onlyTrue,
};

interface Besides {
  /** The directory from which relative host paths start; it is absolute itself. Absent: each host path is absolute. */
  readonly base?: string;
  /** Absent: none. */
  readonly network?: NetworkRequest;
  /** A limit that is absent is not set. */
  readonly limits?: Limits;
  /** Absent: a policy without ceilings, enough for queries about files. A plan needs a policy of `loadPolicy`. */
  readonly policy?: Policy;
}

/** A named directory of the namespace, or a single file. */
export type MountOf = Omit<NamedPlace, "name" | "grantable">;

/** Host directories by their names in the sandbox (`data` is at `/data`), or one directory as `/`. */
export type SandboxDeclaration =
  | (Besides & { readonly mounts: Readonly<Record<string, MountOf>>; readonly root?: never })
  | (Besides & { readonly root: RootPlace; readonly mounts?: never });

/**
 * A sandbox from data only, without a project or a disk. Host paths are used as they are: they must be absolute, and without
 * symbolic links if they are to be mounted.
 *
 * @throws RangeError for a key or a value that does not exist, and for an impossible name or host path; SandboxPermissionEscalationError if network or limits exceed the
 *   policy.
 */
export function sandboxOf(declaration: SandboxDeclaration): FileSandbox {
  checkKeys(declaration, DECLARATION, "the declaration");
  const { base = "" } = declaration;
  if (base !== "" && !isAbsolute(base))
    throw new RangeError(`\`base\` of the declaration must be absolute, and is ${base}`);
  const { network: asked, limits, policy = WITHOUT_CEILINGS } = declaration;
  const network = asked === undefined ? undefined : networkOf(asked, "`network` of the declaration");
  // A program declares the sandbox itself that it uses, so what the policy does not allow is refused, and not left out.
  const { violations } = withinCeilings({ network: network ?? false, limits: limits ?? {} }, policy);
  if (violations.length > 0) throw new SandboxPermissionEscalationError(violations);
  const mounts = mountsOf(declaration);
  return new FileSandbox(
    projectSandbox({ mounts, rooted: declaration.root !== undefined, ...present({ network, limits }) }, policy),
  );
}

function mountsOf({ root, mounts, base }: SandboxDeclaration): Mount[] {
  if (root === undefined && mounts === undefined)
    throw new RangeError("give `mounts`, the host directories by their names, or `root`, one directory as `/`");
  if (root !== undefined && mounts !== undefined) throw new RangeError("give either `root` or `mounts`, not both");
  if (root !== undefined) checkKeys(root, ROOT_PLACE, "the root");
  if (root !== undefined) return mountFromRoot({ ...root, host: hostOf("/", root.host, base) });
  return mountsFromPaths(
    Object.entries(mounts).map(([name, place]) => {
      const fault = mountNameFault(name);
      if (fault !== null) throw new RangeError(`the mount ${JSON.stringify(name)} ${fault}`);
      checkKeys(place, MOUNT, `the mount ${name}`);
      return { ...place, name, host: hostOf(name, place.host, base) };
    }),
  );
}

function hostOf(name: string, given: unknown, base: string | undefined): string {
  if (typeof given !== "string") throw new RangeError(`the mount ${name} needs \`host\`, its directory on this host`);
  const host = base === undefined ? given : resolve(base, given);
  if (!isAbsolute(host))
    throw new RangeError(`the host path of ${name} must be absolute, and is ${host}; with \`base\` it may be relative`);
  return host === "/" ? host : normalize(host).replace(/\/$/, "");
}

const CONSTRAINTS = {
  suffixes: suffixList,
  maxFileBytes: byteCount,
  approval: approvalMap,
  stage: onlyTrue,
  discard: onlyTrue,
};
const MOUNT: KeyChecks<MountOf> = { host: text, at: text, mode: modeName, ...CONSTRAINTS };
const ROOT_PLACE: KeyChecks<RootPlace> = { host: text, readonly: trueOrFalse, ...CONSTRAINTS };
const DECLARATION: KeyChecks<SandboxDeclaration> = {
  mounts: any,
  root: any,
  base: text,
  network: any,
  limits: limitMap,
  policy: policyObject,
};

const LARGEST = everyLimit(() => Number.MAX_SAFE_INTEGER);

/** Every hardening line at its strictest: no derived sandbox can be weaker. */
const WITHOUT_CEILINGS: Policy = {
  name: "none",
  description: "No policy: for questions about files alone",
  hardening: BASELINE,
  network: true,
  maxLimits: LARGEST,
  defaultLimits: LARGEST,
  reuse: "fresh",
  tmpBytes: 0,
  homeBytes: 0,
  nofile: 0,
};
