import { isIP } from "node:net";
import { ModelFailure } from "../../agent/events.ts";
import { type FleetDefinition, fleetNamed, fleetNames } from "../../declarations/fleet.ts";
import { kindsOf, notesOf } from "../../declarations/network/package-rules.ts";
import { resolveHostPlace } from "../../declarations/place/host-place.ts";
import { UnknownPolicyError } from "../../declarations/policy/policy.ts";
import type { Project } from "../../declarations/project.ts";
import { DeclarationError, describeProblem } from "../../declarations/yaml/problem.ts";
import { within } from "../../platform/within.ts";
import { blockText, isAddressIn, parseBlock } from "../../sandbox/network/address.ts";
import type { PackageKind } from "../../sandbox/network/rule.ts";
import type { NetworkHost } from "../model/environment.ts";
import type { DescribedViolation } from "../model/result.ts";
import { madeAtFirstUse, NO_ASK } from "../model/worker-images.ts";
import type { Preview } from "../open/preview.ts";
import { Budget, directNote, type ExplainedRun, explainRoot } from "./explain.ts";

/** What is wrong with a project before anything runs. */
export interface CheckReport {
  /** True if every call path would run. Warnings do not count. */
  readonly ok: boolean;
  /** Mistakes in files, each with its place. If there are any, no path is checked. */
  readonly problems: readonly string[];
  readonly failing: readonly FailingPath[];
  readonly warnings: readonly string[];
  readonly workers: number;
  /** The number of call paths that were checked, including those of a single worker. */
  readonly paths: number;
  /** True if there are more paths than were checked. */
  readonly cut: boolean;
  /** For each policy that something in the project names and that extends others: these, the nearest first. */
  readonly inherits: Readonly<Record<string, readonly string[]>>;
}

/** A call path, from the worker that a person runs to the one that would not run. */
export interface FailingPath {
  readonly path: readonly string[];
  readonly outcome: "refused" | "denied";
  readonly violations: readonly DescribedViolation[];
  readonly message: string;
}

const MAX_PATHS = 10_000;

/** A report for a project whose files do not parse. */
export function checkDeclaration(error: DeclarationError): CheckReport {
  const nothing = { failing: [], warnings: [], workers: 0, paths: 0, cut: false, inherits: {} };
  return { ok: false, problems: error.problems.map(describeProblem), ...nothing };
}

/** Walks every call path of every worker, each as a root run, in the way that a run would go. Starts no container. */
export async function check(preview: Preview, maxPaths = MAX_PATHS): Promise<CheckReport> {
  const { project } = preview;
  const workers = [...project.workers.values()];
  const scripts = await scriptFaults(project);
  const fleets = await fleetsOf(project);
  const policies = await policiesOf(preview, fleets.read);
  const problems = [...policies.problems, ...scripts.problems, ...fleets.problems];
  const budget = new Budget(maxPaths);
  const failing: FailingPath[] = [];
  const direct = new Set<string>();
  for (const worker of problems.length > 0 ? [] : workers) {
    const root = await explainRoot(worker, null, { preview, budget });
    for (const run of everyRun(root)) {
      const failure = failureOf(run);
      if (failure !== null) failing.push(failure);
      const note = run.sandbox === null ? null : directNote(run.worker, run.sandbox);
      if (note !== null) direct.add(note);
    }
  }
  const warnings = [...(await unmadeImages(preview)), ...direct];
  for (const { withoutEffect = [] } of workers) warnings.push(...withoutEffect.map(describeProblem));
  for (const registries of project.registries.values()) warnings.push(...notesOf(registries));
  warnings.push(...scripts.missing, ...missingKeys(preview), ...(await missingFolders(project)));
  warnings.push(...(await privateRegistries(project, preview.environment)));
  if (preview.unavailable !== null) warnings.push(`Images were not checked. ${preview.unavailable}`);
  return {
    ok: problems.length === 0 && failing.length === 0,
    problems,
    failing,
    warnings,
    workers: workers.length,
    paths: budget.spent,
    cut: budget.cut,
    inherits: Object.fromEntries(policies.inherits),
  };
}

/** Whether every policy that is named, by the project, a worker or a fleet, exists and is sound, and what each extends. */
async function policiesOf(
  { project, environment }: Preview,
  fleets: readonly FleetDefinition[],
): Promise<{ problems: readonly string[]; inherits: ReadonlyMap<string, readonly string[]> }> {
  const problems = new Set<string>();
  const inherits = new Map<string, readonly string[]>();
  const own = { file: project.file ?? project.dir, policyName: project.policyName };
  for (const { file, policyName } of [own, ...project.workers.values(), ...fleets]) {
    try {
      const policy = policyName === null ? null : await environment.policyNamed(policyName);
      if (policy?.inherits !== undefined) inherits.set(policy.name, policy.inherits);
    } catch (error) {
      if (error instanceof UnknownPolicyError) problems.add(`${file}: policy: ${error.message}`);
      else if (error instanceof DeclarationError) for (const one of error.problems) problems.add(describeProblem(one));
      else throw error;
    }
  }
  return { problems: [...problems], inherits };
}

/**
 * Scripts of scripted models that cannot be used. A missing script is no mistake in a file, like a missing image: it may
 * be written or recorded before the agent runs. The parser is loaded only if there is a script.
 */
async function scriptFaults({ workers, dir }: Project): Promise<{ problems: string[]; missing: string[] }> {
  const [problems, missing]: [string[], string[]] = [[], []];
  for (const { file, name, agent } of workers.values()) {
    if (agent?.model.kind !== "script") continue;
    const script = agent.model.file;
    const { openScript } = await import("../../agent/open-script.ts");
    try {
      await openScript(script, dir);
    } catch (error) {
      if (!(error instanceof ModelFailure)) throw error;
      const isMissing = (error.cause as NodeJS.ErrnoException | undefined)?.code === "ENOENT";
      if (isMissing) missing.push(`There is no script ${script}, which plays the model of worker ${name}.`);
      else problems.push(`${file}: model: ${error.message}`);
    }
  }
  return { problems, missing };
}

/** Folders for dynamic grants that cannot be used. Without this check, a typing mistake would never be reported. */
async function missingFolders({ workers, dir }: Project): Promise<string[]> {
  const warnings: string[] = [];
  for (const { file, dynamic } of workers.values()) {
    for (const folder of dynamic?.within ?? []) {
      const place = await resolveHostPlace(dir, folder);
      const fault = place.ok ? (place.directory ? null : "is not a folder") : place.fault;
      if (fault !== null)
        warnings.push(`${file}: sandbox.dynamic.within: ${folder} ${fault}; nothing can be granted there.`);
    }
  }
  return warnings;
}

/** Keys that are not set now. A program that prints a key is not run for a check. */
function missingKeys({ project, environment }: Preview): string[] {
  const missing = new Map<string, string[]>();
  for (const { name, agent } of project.workers.values()) {
    const provider = agent?.model.kind === "provider" ? project.models.get(agent.model.provider) : undefined;
    if (provider?.key?.kind !== "env" || environment.models.env[provider.key.name]) continue;
    missing.set(provider.key.name, [...(missing.get(provider.key.name) ?? []), name]);
  }
  return [...missing].map(
    ([variable, users]) =>
      `The environment variable ${variable} is not set. Workers that need its key: ${users.sort().join(", ")}.`,
  );
}

/** The files of fleets. Their items are not checked: a manifest may be written later. */
async function fleetsOf(project: Project): Promise<{ read: FleetDefinition[]; problems: string[] }> {
  const [read, problems]: [FleetDefinition[], string[]] = [[], []];
  const names = project.fleetsDir === null ? [] : await fleetNames(project.fleetsDir);
  for (const name of names) {
    try {
      read.push(await fleetNamed(project, name));
    } catch (error) {
      if (!(error instanceof DeclarationError)) throw error;
      problems.push(...error.problems.map(describeProblem));
    }
  }
  return { read, problems };
}

function everyRun(run: ExplainedRun): ExplainedRun[] {
  return [run, ...run.services.map((service) => service.run), ...run.calls.flatMap(everyRun)];
}

/** What the first run builds, pulls or prepares, each once. */
async function unmadeImages({ project, environment, unavailable }: Preview): Promise<string[]> {
  const notes = new Set<string>();
  for (const worker of unavailable === null ? project.workers.values() : []) {
    const ready = await environment.images.ready(worker, NO_ASK);
    const parts = ready.state === "unmade" ? ready.parts : [];
    for (const part of parts) if (part.kind !== "named") notes.add(madeAtFirstUse(part));
  }
  return [...notes];
}

function failureOf({ path, refused, consent }: ExplainedRun): FailingPath | null {
  const violations = refused ?? [];
  if (violations.length > 0) {
    const message = violations.map((violation) => violation.message).join("\n");
    return { path, outcome: "refused", violations, message };
  }
  // Which of its changes a rule of the project approves, only a run can tell.
  if (consent?.decision === "denied" && !consent.ruled)
    return { path, outcome: "denied", violations: [], message: consent.note };
  return null;
}

/** How long a check waits for the name of a registry. */
const LOOKUP_MS = 3000;

/** Registries of this machine that no worker reaches: they are at addresses that are not public, and a file of the project names none. */
export async function privateRegistries(
  project: Project,
  { resolveName }: Pick<NetworkHost, "resolveName">,
): Promise<string[]> {
  const known = new Map<PackageKind, Promise<readonly RegistryPlace[]>>();
  const warnings: string[] = [];
  for (const { at, kind, line } of presetsWithoutAddresses(project)) {
    const hosts = project.registries.get(kind)?.registries.map(({ url }) => new URL(url).hostname) ?? [];
    const finding = known.get(kind) ?? privatePlaces([...new Set(hosts)], resolveName);
    known.set(kind, finding);
    const places = await finding;
    if (places.length === 0) continue;
    const where = places.map(({ host, block }) => `${host} at ${block}`).join(", ");
    const way = line([...new Set(places.map(({ block }) => block))].join(", "));
    warnings.push(
      `${at}: the registry of ${kind} is ${where}, which is not public, so it is not reached. Write \`${way}\`.`,
    );
  }
  return [...new Set(warnings)];
}

interface Preset {
  /** The file, and the section in it. */
  readonly at: string;
  readonly kind: PackageKind;
  /** The line that names these addresses. */
  readonly line: (addresses: string) => string;
}

/** Each use of a preset for which no addresses are given. */
function presetsWithoutAddresses({ declaration, file, dir, workers }: Project): Preset[] {
  const inNetwork = (of: string, kind: PackageKind): Preset => {
    const line = (addresses: string): string => `packages: [{ kind: ${kind}, addresses: [${addresses}] }]`;
    return { at: `${of}: sandbox.network`, kind, line };
  };
  const inEnvironment = (of: string, kind: PackageKind): Preset => ({
    at: `${of}: environment`,
    kind,
    line: (addresses) => `addresses: [${addresses}]`,
  });
  const allowed = typeof declaration.network === "object" ? declaration.network.allow : [];
  // A worker that names no addresses has those of the project.
  const isPlaced = (kind: PackageKind): boolean =>
    allowed.some(({ packages, addresses }) => packages?.kind === kind && addresses !== undefined);
  return [
    ...allowed.flatMap(({ packages, addresses }) =>
      packages === undefined || addresses !== undefined ? [] : [inNetwork(file ?? dir, packages.kind)],
    ),
    ...[...workers.values()].flatMap(({ file: of, needs: { network }, environment = {} }) => {
      const terms = typeof network === "object" ? network : { packages: [] };
      const { packages = [] } = terms;
      const isOpen = (kind: PackageKind): boolean =>
        !isPlaced(kind) && !packages.some((preset) => preset.kind === kind && preset.addresses !== undefined);
      const kinds = kindsOf(terms).filter(isOpen);
      const { pip, npm, addresses } = environment;
      const prepared = addresses === undefined ? ([pip && "pypi", npm && "npm"] as const) : [];
      return [
        ...kinds.map((kind) => inNetwork(of, kind)),
        ...prepared.flatMap((kind) => (kind ? [inEnvironment(of, kind)] : [])),
      ];
    }),
  ];
}

interface RegistryPlace {
  readonly host: string;
  /** In CIDR. */
  readonly block: string;
}

/** Those that have no public address. A name that is not found now has no address here. */
async function privatePlaces(
  hosts: readonly string[],
  resolve: NetworkHost["resolveName"],
): Promise<readonly RegistryPlace[]> {
  const places: RegistryPlace[] = [];
  for (const host of hosts) {
    const plain = host.replace(/^\[(.*)\]$/, "$1");
    const lookup = isIP(plain) > 0 ? [plain] : resolve(plain, AbortSignal.timeout(LOOKUP_MS));
    const found = (await within(Promise.resolve(lookup), LOOKUP_MS).catch(() => null)) ?? [];
    const [first] = found.flatMap((address) => parseBlock(address) ?? []);
    if (first === undefined || found.some((address) => isAddressIn(address, undefined))) continue;
    places.push({ host, block: blockText(first) });
  }
  return places;
}
