import { resolveNetwork } from "../../declarations/network/package-rules.ts";
import type { RegistryMap } from "../../declarations/network/registries/read-registries.ts";
import {
  directoryOf,
  exposedOwnFiles,
  plantedLinkFault,
  resolveHostPlace,
} from "../../declarations/place/host-place.ts";
import type { Project } from "../../declarations/project.ts";
import { type RawNeeds, type RawPathNeed, writableFolders } from "../../declarations/worker/exposure.ts";
import type { WorkerDefinition } from "../../declarations/worker/worker.ts";
import { isShown, namesBeforeColon, readablePaths } from "../../sandbox/access.ts";
import type { Narrowing } from "../../sandbox/ancestry.ts";
import { projectSandbox } from "../../sandbox/declare.ts";
import { derive } from "../../sandbox/derive.ts";
import type { Policy } from "../../sandbox/policy.ts";
import {
  commandSandbox,
  type Derivation,
  declaredBy,
  keptForCommands,
  type Needs,
  type PathNeed,
  type Sandbox,
} from "../../sandbox/sandbox.ts";
import type { Violation } from "../../sandbox/violation.ts";
import { parseVirtualPath, ROOT, type VirtualPath } from "../../sandbox/virtual-path.ts";
import { present } from "../../text/present.ts";
import type { Declared } from "./environment.ts";
import type { Narrow } from "./job.ts";

/**
 * The project's own sandbox: the caller of every root run. `policy` is the user's choice for this run. If there is none, the
 * worker's own policy holds, and if it names none, the project's.
 */
export async function rootSandbox(env: Declared, policy: string | null, worker?: WorkerDefinition): Promise<Sandbox> {
  const { declaration, policyName } = env.project;
  return projectSandbox(declaration, await env.policyNamed(policy ?? worker?.policyName ?? policyName));
}

/**
 * What a worker gets under a caller: its needs are resolved and derived, then narrowed by what the caller takes away. What a
 * command has less than its run counts before, so that a worker that asks for more is refused.
 * A root run that sets no limit gets its policy's defaults.
 */
export async function permissionOf(
  worker: WorkerDefinition,
  calling: Sandbox,
  narrow: Narrow | null,
  env: Declared,
): Promise<Derivation> {
  const caller = narrow?.network === undefined ? calling : commandSandbox(calling, narrow.network);
  const policy = worker.policyName === null ? null : await env.policyNamed(worker.policyName);
  const writable = worker.needs.paths === undefined ? [] : await writableHosts(env.project);
  const { dir: projectDir, registries } = env.project;
  const context = { projectDir, parent: caller, writable, registries, ...(policy === null ? {} : { policy }) };
  const resolution = await resolveNeeds(worker.needs, context);
  if (!resolution.ok) return resolution;
  const isRoot = caller.chain.length === 1;
  const defaults = (policy ?? caller.policy).defaultLimits;
  const needs = isRoot ? withDefaultLimits(resolution.needs, defaults, caller) : resolution.needs;
  const derivation = derivedSafely(caller, needs, worker.name, env);
  if (!derivation.ok) return derivation;
  const told = { ...derivation.sandbox, narrowings: narrowingsBy(derivation.sandbox, resolution.needs, caller) };
  const sandbox = startingIn(env.project, needs, told);
  const own = keptForCommands(
    sandbox,
    worker.shellRules.rules.flatMap(({ grants }) => (grants === undefined ? [] : [grants.network])),
  );
  return narrow === null ? { ok: true, sandbox: own } : narrowed(own, narrow, worker.name, caller, env);
}

/** Every host directory that any worker of the project may write: a link in one of them may be a worker's. */
export async function writableHosts({ dir, declaration, workers }: Project): Promise<string[]> {
  return await writableFolders(dir, declaration, workers);
}

/** A worker that names no working directory gets the project's if it sees that. Its caller does not choose it. */
function startingIn({ declaration }: Project, needs: Needs, sandbox: Sandbox): Sandbox {
  const { workingDir = ROOT } = declaration;
  // Directories that a worker names itself are in a namespace of their own.
  const isForeign = needs.workingDir !== undefined || needs.paths !== undefined;
  return isForeign || !isShown(sandbox, workingDir) ? sandbox : { ...sandbox, workingDir };
}

/** A limit that the worker's file does not name is its policy's doing. */
function narrowingsBy({ narrowings, policy }: Sandbox, { limits = {} }: Needs, caller: Sandbox): Narrowing[] {
  return narrowings.map((narrowing, index) => {
    const isOwn = index >= caller.narrowings.length && narrowing.kind === "limit";
    return isOwn && limits[narrowing.limit] === undefined ? { ...narrowing, by: `policy ${policy.name}` } : narrowing;
  });
}

function derivedSafely(caller: Sandbox, needs: Needs, name: string, env: Declared): Derivation {
  const derivation = derive(caller, needs, name);
  if (!derivation.ok) return derivation;
  const violations = exposedOwnFiles(declaredBy(derivation.sandbox), env.project.ownFiles);
  return violations.length === 0 ? derivation : { ok: false, violations };
}

/** Everything as it is, but for the files that the caller leaves. */
async function narrowed(
  sandbox: Sandbox,
  narrow: Narrow,
  name: string,
  caller: Sandbox,
  env: Declared,
): Promise<Derivation> {
  const { network, secrets = [], writableRoot } = sandbox;
  const asked = { ...narrow, inherit: true, network, secrets, ...present({ writableRoot }) };
  const resolution = await resolveNeeds(asked, { projectDir: env.project.dir, parent: sandbox });
  if (!resolution.ok) return resolution;
  const by = `${caller.chain.at(-1)} (calling ${name})`;
  const derivation = derive(sandbox, resolution.needs, by);
  if (!derivation.ok) return derivation;
  const workingDir = isShown(derivation.sandbox, sandbox.workingDir) ? sandbox.workingDir : ROOT;
  return { ok: true, sandbox: { ...derivation.sandbox, workingDir, chain: sandbox.chain } };
}

function withDefaultLimits(needs: Needs, defaults: Needs["limits"] & object, caller: Sandbox): Needs {
  const limits = { ...defaults, ...needs.limits };
  for (const [name, value] of Object.entries(caller.limits) as [keyof typeof limits, number][]) {
    // A default is not a demand: if the project allows less, the worker gets less.
    if (needs.limits?.[name] === undefined && value < (limits[name] ?? value)) limits[name] = value;
  }
  return { ...needs, limits };
}

export interface ResolveContext {
  readonly projectDir: string;
  /** The caller's sandbox: its mounts define names and places of files. */
  readonly parent: Sandbox;
  /** The policy that the worker names; absent if it names none. */
  readonly policy?: Policy;
  /** Host directories in which some worker may have put a link. */
  readonly writable?: readonly string[];
  /** Those of the presets that the worker uses. Absent: it uses none. */
  readonly registries?: RegistryMap;
}

export type NeedsResolution =
  | { readonly ok: true; readonly needs: Needs }
  | { readonly ok: false; readonly violations: readonly Violation[] };

/** The I/O step between a worker's file and the pure `derive`. Reports all violations together. */
export async function resolveNeeds(raw: RawNeeds, context: ResolveContext): Promise<NeedsResolution> {
  const violations: Violation[] = [];
  const { parent, projectDir, policy, writable = [], registries = new Map() } = context;
  const place = (path: string): VirtualPath | undefined => {
    const parsed = parseIn(parent, path);
    if (!parsed.ok) violations.push(notAPath(parent, path));
    return parsed.ok ? parsed.path : undefined;
  };
  const directories = (paths: readonly string[] | undefined) => {
    const places = paths?.map(place).filter((path) => path !== undefined);
    return places && [...new Set(places.map((path) => directoryOf(parent, path)))];
  };

  const paths: PathNeed[] = [];
  for (const path of raw.paths ?? []) {
    const resolved = await resolvePath(path, projectDir, writable);
    if ("code" in resolved) violations.push(resolved);
    else paths.push(resolved);
  }
  const allowRead = directories(raw.allowRead);
  const allowWrite = directories(raw.allowWrite);
  const workingDir = raw.workingDir === undefined ? undefined : place(raw.workingDir);
  const network = raw.network === undefined ? undefined : await resolveNetwork(raw.network, { projectDir, registries });
  if (network?.ok === false)
    violations.push(
      ...network.faults.map(
        ({ at, fault }): Violation => ({ code: "NETWORK_NOT_RESOLVED", at: at.join("."), reason: fault }),
      ),
    );
  if (violations.length > 0 || network?.ok === false) return { ok: false, violations };
  const needs = {
    ...raw,
    paths: raw.paths && paths,
    allowRead,
    allowWrite,
    workingDir,
    network: network?.network,
    policy,
  };
  return { ok: true, needs: present(needs) };
}

/** A worker's paths are relative to `/`, so that its file means the same for every caller. */
function parseIn({ mounts }: Sandbox, path: string) {
  const home = mounts.find((mount) => mount.name === "home" && mount.path === "/home");
  return parseVirtualPath(path, { mountNames: namesBeforeColon(mounts), ...(home && { home: home.path }) });
}

function notAPath(parent: Sandbox, asked: string): Violation {
  const valid = readablePaths(parent);
  return { code: "PATH_NOT_AVAILABLE", asked, by: parent.chain.at(-1) ?? "project", valid };
}

async function resolvePath(
  { root, ...path }: RawPathNeed,
  projectDir: string,
  writable: readonly string[],
): Promise<PathNeed | Violation> {
  const place = await resolveHostPlace(projectDir, root);
  const fault = place.ok ? plantedLinkFault(place.links, writable) : place.fault;
  if (!place.ok || fault !== null)
    return {
      code: "MOUNT_SOURCE_REFUSED",
      path: path.at ?? `/${path.name}`,
      reason: `it ${fault ?? "cannot be opened"}`,
    };
  return { ...path, host: place.host };
}
