import { directoryOf } from "../declarations/place/entry-directory.ts";
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
import { derive } from "../sandbox/derive.ts";
import { PathNotInSandboxError, type SandboxError } from "../sandbox/errors.ts";
import type { Access } from "../sandbox/mount.ts";
import type { Needs, Sandbox, ZoneNeed } from "../sandbox/sandbox.ts";
import type { Violation } from "../sandbox/violation.ts";
import type { VirtualPath } from "../sandbox/virtual-path.ts";
import { SandboxPermissionEscalationError } from "../sandbox/wording.ts";
import {
  any,
  approvalMap,
  byteCount,
  checkKeys,
  type KeyChecks,
  limitMap,
  modeName,
  onlyTrue,
  pathList,
  policyObject,
  suffixList,
  text,
  trueOrFalse,
} from "./checked-request.ts";
import { type NetworkRequest, networkOf } from "./network-request.ts";

/**
 * What a child asks of its parent. Paths are text, as a worker writes them: `/data/a`, `data/a`, `data:a`; each means
 * a directory, because the disk is not read.
 */
export interface DeriveRequest
  extends Omit<
    Needs,
    "allowRead" | "allowWrite" | "workingDir" | "paths" | "inherit" | "readonly" | "network" | "secrets"
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
