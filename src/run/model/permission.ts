import { exposedOwnFiles } from "../../declarations/place/host-place.ts";
import type { Project } from "../../declarations/project.ts";
import { resolveNeeds } from "../../declarations/resolve.ts";
import { writableFolders } from "../../declarations/worker/exposure.ts";
import type { WorkerDefinition } from "../../declarations/worker/worker.ts";
import { isShown } from "../../sandbox/access.ts";
import type { Narrowing } from "../../sandbox/ancestry.ts";
import { projectSandbox } from "../../sandbox/declare.ts";
import { derive } from "../../sandbox/derive.ts";
import {
  commandSandbox,
  type Derivation,
  declaredBy,
  keptForCommands,
  type Needs,
  type Sandbox,
} from "../../sandbox/sandbox.ts";
import { ROOT } from "../../sandbox/virtual-path.ts";
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
  const asked = { ...narrow, inherit: true, network: sandbox.network, secrets: sandbox.secrets ?? [] };
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
