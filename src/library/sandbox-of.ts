import { isAbsolute, normalize, resolve } from "node:path/posix";
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
  byteCount,
  checkKeys,
  type KeyChecks,
  limitMap,
  modeName,
  onlyTrue,
  policyObject,
  suffixList,
  text,
  trueOrFalse,
} from "./checked-request.ts";
import { FileSandbox } from "./file-sandbox.ts";
import { type NetworkRequest, networkOf } from "./network-request.ts";

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
