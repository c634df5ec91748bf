import { isAbsolute, normalize } from "node:path/posix";
import { mountNameFault } from "../declarations/terms/names.ts";
import {
  mountFromRoot,
  mountsFromPaths,
  type NamedPlace,
  projectSandbox,
  type RootPlace,
  withinCeilings,
} from "../sandbox/declare.ts";
import { everyLimit, type Limits } from "../sandbox/limits.ts";
import type { Mount } from "../sandbox/mount.ts";
import { BASELINE, type Policy } from "../sandbox/policy.ts";
import { SandboxPermissionEscalationError } from "../sandbox/wording.ts";
import { present } from "../text/present.ts";
import {
  any,
  approvalMap,
  checkKeys,
  type KeyChecks,
  limitMap,
  modeName,
  onlyTrue,
  policyObject,
  trueOrFalse,
} from "./checked-request.ts";
import { FileSandbox } from "./file-sandbox.ts";
import { type NetworkRequest, networkOf } from "./network-request.ts";

interface Besides {
  /** Absent: none. */
  readonly network?: NetworkRequest;
  /** A limit that is absent is not set. */
  readonly limits?: Limits;
  /** Absent: a policy without ceilings, enough for queries about files. A plan needs a policy of `loadPolicy`. */
  readonly policy?: Policy;
}

/** A named directory of the namespace, or a single file. */
export type MountOf = Omit<NamedPlace, "name">;

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

function mountsOf({ root, mounts }: SandboxDeclaration): Mount[] {
  if (root !== undefined && mounts !== undefined) throw new RangeError("give either `root` or `mounts`, not both");
  if (root !== undefined) checkKeys(root, ROOT_PLACE, "the root");
  if (root !== undefined) return mountFromRoot({ ...root, host: hostOf("/", root.host) });
  return mountsFromPaths(
    Object.entries(mounts).map(([name, place]) => {
      const fault = mountNameFault(name);
      if (fault !== null) throw new RangeError(`the mount ${JSON.stringify(name)} ${fault}`);
      checkKeys(place, MOUNT, `the mount ${name}`);
      return { ...place, name, host: hostOf(name, place.host) };
    }),
  );
}

function hostOf(name: string, host: string): string {
  if (!isAbsolute(host)) throw new RangeError(`the host path of ${name} must be absolute, and is ${host}`);
  return host === "/" ? host : normalize(host).replace(/\/$/, "");
}

const CONSTRAINTS = { suffixes: any, maxFileBytes: any, approval: approvalMap, stage: onlyTrue, discard: onlyTrue };
const MOUNT: KeyChecks<MountOf> = { host: any, at: any, mode: modeName, ...CONSTRAINTS };
const ROOT_PLACE: KeyChecks<RootPlace> = { host: any, readonly: trueOrFalse, ...CONSTRAINTS };
const DECLARATION: KeyChecks<SandboxDeclaration> = {
  mounts: any,
  root: any,
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
