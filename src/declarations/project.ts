import { join, resolve } from "node:path";
import { namesBeforeColon } from "../sandbox/access.ts";
import type { ApprovalMode, InboxMode } from "../sandbox/approval.ts";
import type { ProjectDeclaration } from "../sandbox/declare.ts";
import type { DriverChoice } from "../sandbox/driver-choice.ts";
import type { Mount } from "../sandbox/mount.ts";
import type { NetworkRule } from "../sandbox/network/rule.ts";
import { covers, holds, parseVirtualPath, type VirtualPath } from "../sandbox/virtual-path.ts";
import type { Env, SecretSource } from "../secrets/read-secret.ts";
import { present } from "../text/present.ts";
import {
  type ApprovalRuleYaml,
  type CorralFile,
  type DeclaredTexts,
  folderAt,
  readCorral,
  subfolder,
  writtenFolder,
} from "./corral-file.ts";
import type { FleetManner } from "./fleet-yaml.ts";
import { type GitRepo, type GitYaml, parseGitUrl } from "./git/repo.ts";
import { type ModelProvider, placesOfKeys, resolveModels } from "./models/models.ts";
import { kindsOf } from "./network/package-rules.ts";
import { type RegistryMap, readRegistries } from "./network/registries/read-registries.ts";
import type { RawAllowList, RawNetwork } from "./network/rule-terms.ts";
import { filesAround, ownFilesOf, stillToBe, withOwnFilesReadOnly } from "./place/host-place.ts";
import { corralsOwn } from "./place/package-root.ts";
import type { NewZone } from "./place/zone-folder.ts";
import { defaultDeclaration, type ResolvedDeclaration, resolveDeclaration } from "./terms/declaration.ts";
import { type SecretsYaml, secretNameFault, sourceOf } from "./terms/names.ts";
import {
  type Exposure,
  exposureFault,
  secretFault,
  secretsPlace,
  shownFolders,
  writableFolders,
} from "./worker/exposure.ts";
import type { WorkerDefinition } from "./worker/worker.ts";
import {
  type CheckedWorkers,
  environmentKinds,
  imageFiles,
  type KnownNames,
  readWorkers,
  readWorkerTexts,
  withoutFaults,
} from "./worker/workers.ts";
import type { Checked, KeyPath, YamlDocument } from "./yaml/document.ts";
import { DeclarationError, type Problem } from "./yaml/problem.ts";

/** What is wrong in the files of a project, and the workers with whose own files nothing is. None of them may be run. */
export class ProjectError extends DeclarationError {
  readonly sound: ReadonlyMap<string, WorkerDefinition>;

  constructor(problems: readonly Problem[], workers: ReadonlyMap<string, WorkerDefinition> = new Map()) {
    super(problems);
    this.sound = withoutFaults(workers, problems);
  }
}

/** A folder whose files may be granted, and the workers that may be run on them. Checked, resolved, plain data. */
export interface Project {
  /** Absolute, with no symbolic link in it. */
  readonly dir: string;
  /** `corral.yaml`, or null if there is none. */
  readonly file: string | null;
  /** Nothing of it is in a file: a command line says it, and no other command finds it. */
  readonly isImplied?: true;
  readonly declaration: ProjectDeclaration;
  /** Folders of zones that did not exist when it was read. */
  readonly newZones: readonly NewZone[];
  readonly policyName: string;
  /** The project's own policy files; searched before the package's. */
  readonly policiesDir: string | null;
  readonly approval: {
    readonly mode: ApprovalMode;
    readonly timeoutMs: number;
    readonly inbox: InboxMode;
    readonly rules: readonly ApprovalRuleYaml[];
  };
  readonly delegation: { readonly maxDepth: number; readonly maxCalls: number; readonly maxParallel: number };
  readonly workers: ReadonlyMap<string, WorkerDefinition>;
  /** Where agents' models are, by the names of their providers; those that need no declaration among them. */
  readonly models: ReadonlyMap<string, ModelProvider>;
  /** What makes its cells, unless its user chooses; absent: `auto`. */
  readonly driver?: DriverChoice;
  /** Repositories by name; absent if the project declares none. */
  readonly git?: ReadonlyMap<string, GitRepo>;
  /** Real paths of the files that define what workers may do. No worker ever writes them. */
  readonly ownFiles: readonly string[];
  /** The folder of its fleets; null if a worker may write there and `corral.yaml` does not name it. */
  readonly fleetsDir: string | null;
  /** Defaults for fleets. A fleet's own file and its caller override them. */
  readonly fleet: FleetManner;
  /** What is kept of its runs; null: nothing. */
  readonly history: { readonly days: number; readonly runs: number } | null;
  /** Where secrets are that rules of a network set and workers have inside, by name. */
  readonly secrets: ReadonlyMap<string, SecretSource>;
  /** The registries of the presets that something in the project uses, as this machine was configured when it was read. */
  readonly registries: RegistryMap;
}

/**
 * Reads a project. Throws one `DeclarationError` with the problems of all its files. `env`: Corral's own environment, for the
 * settings of package tools and the home of their user; `root`: where the settings of the whole machine are.
 */
export async function loadProject(dir: string, env: Env = {}, root = "/"): Promise<Project> {
  return await readProject(dir, null, { env, root });
}

/**
 * The same from texts in place of files; its paths are relative to `dir`. No file of a project there is read, but those of the
 * nearest one are as safe from workers as its own.
 */
export async function loadDeclaredProject(dir: string, texts: DeclaredTexts, env: Env = {}): Promise<Project> {
  return await readProject(dir, texts, { env, root: "/" });
}

async function readProject(
  dir: string,
  texts: DeclaredTexts | null,
  machine: { readonly env: Env; readonly root: string },
): Promise<Project> {
  const { env } = machine;
  const projectDir = await folderAt(dir);
  const corral = await readCorral(projectDir, join(dir, "corral.yaml"), texts);
  const policiesDir = await subfolder(corral, "policies", projectDir);
  const ownRegistries = await readRegistries(
    corral.checked.ok ? networksOf([corral.checked.value.sandbox ?? {}]).flatMap(kindsOf) : [],
    machine,
  );
  const resolved = await declarationOf(corral, projectDir, ownRegistries);
  const declaration = resolved.ok ? ({ ok: true, value: resolved.value.declaration } as const) : resolved;
  const given = corral.checked.ok && declaration.ok ? declaration.value.mounts.map(({ name }) => name) : null;
  const secretNames = corral.checked.ok ? [...(corral.checked.value.secrets?.keys() ?? [])] : null;
  const workers = await workersOf(corral, projectDir, dir, { mounts: given, secrets: secretNames });
  const fleetsDir = await subfolder(corral, "fleets", projectDir);
  const exposure =
    workers.ok && declaration.ok ? await exposureOf(projectDir, declaration.value, workers.value, env) : null;
  const git =
    workers.ok && declaration.ok && exposure ? await gitOf(corral, workers.value, declaration.value, exposure) : NO_GIT;
  const models = await modelsOf(corral, workers, exposure);
  const secrets = await secretsOf(corral, workers, exposure);
  const images = await imageFiles(projectDir, workers, declaration);
  const folders = policiesDir.ok && fleetsDir.ok;
  if (
    !(
      corral.checked.ok &&
      workers.ok &&
      folders &&
      resolved.ok &&
      declaration.ok &&
      git.ok &&
      models.ok &&
      secrets.ok &&
      images.ok
    )
  ) {
    const problems = [
      corral.checked,
      workers,
      policiesDir,
      fleetsDir,
      declaration,
      git,
      models,
      secrets,
      images,
    ].flatMap((part) => (part.ok ? [] : part.problems));
    throw new ProjectError(problems, workers.ok ? workers.value : workers.sound);
  }
  const { policy, approval, delegation, driver, fleet, history } = corral.checked.value;
  const file = corral.found && texts === null ? join(projectDir, "corral.yaml") : null;
  const says = [
    file,
    ...(texts === null ? [] : await filesAround(projectDir)),
    join(projectDir, writtenFolder(corral, "workers")),
    policiesDir.value,
    join(projectDir, writtenFolder(corral, "fleets")),
    ...placesOnHost(git.value, env.HOME),
    ...placesOfKeys(models.value, env.HOME),
    ...[...secrets.value.values()].map((source) => secretsPlace(source, env.HOME)),
  ];
  // Who can write what plays a model has its tools, and who can write a lock file says what is fetched.
  const networks = networksOf([
    corral.checked.value.sandbox ?? {},
    ...[...workers.value.values()].map(({ needs }) => needs),
  ]);
  const played = [...scriptsOf(workers.value), ...networks.flatMap(({ lockfiles = [] }) => lockfiles)];
  const scripts = played.map((file) => resolve(projectDir, file));
  const ownFiles = [
    ...images.value,
    ...(await ownFilesOf([...says, ...scripts])),
    ...(await stillToBe(scripts)),
    ...corralsOwn(),
  ];
  return {
    dir: projectDir,
    file,
    ...(texts === null ? {} : { isImplied: true as const }),
    ownFiles,
    declaration: shielded(declaration.value, ownFiles),
    newZones: resolved.value.newZones,
    policyName: policy,
    policiesDir: policiesDir.value,
    fleetsDir: fleetsDir.value ?? unnamedFleets(projectDir, declaration.value.mounts),
    approval: { mode: approval.mode, timeoutMs: approval.timeout, inbox: approval.inbox, rules: approval.rules },
    delegation: {
      maxDepth: delegation.max_depth,
      maxCalls: delegation.max_calls,
      maxParallel: delegation.max_parallel,
    },
    workers: workers.value,
    models: models.value,
    ...(git.value === null ? {} : { git: git.value }),
    ...present({ driver }),
    fleet,
    history,
    secrets: secrets.value,
    registries: await readRegistries([...networks.flatMap(kindsOf), ...environmentKinds(workers.value)], machine),
  };
}

/** The allow lists among what these declare. */
function networksOf(declared: readonly { readonly network?: RawNetwork | undefined }[]): RawAllowList[] {
  return declared.flatMap(({ network }) => (typeof network === "object" ? [network] : []));
}

function shielded(declaration: ProjectDeclaration, ownFiles: readonly string[]): ProjectDeclaration {
  if (!declaration.rooted) return declaration;
  return { ...declaration, mounts: withOwnFilesReadOnly(declaration.mounts, ownFiles) };
}

/**
 * A `corral.yaml` without `sandbox` gives no files; only a folder without any gets the two default zones. Neither says what
 * the most is, so workers may bring directories of their own.
 */
async function declarationOf(
  corral: CorralFile,
  projectDir: string,
  registries: RegistryMap,
): Promise<Checked<ResolvedDeclaration>> {
  const declaration = { mounts: [], rooted: false, ownPaths: true };
  const none = { ok: true, value: { declaration, newZones: [] } } as const;
  if (!corral.checked.ok || corral.document === null) return none;
  const { problemAt } = corral.document;
  if (!corral.found) return defaultDeclaration(projectDir, problemAt);
  const { sandbox } = corral.checked.value;
  return sandbox === undefined ? none : resolveDeclaration(sandbox, projectDir, problemAt, registries);
}

const NO_GIT = { ok: true, value: null } as const;

async function gitOf(
  { checked, document }: CorralFile,
  workers: ReadonlyMap<string, WorkerDefinition>,
  declaration: ProjectDeclaration,
  exposure: Exposure,
): Promise<Checked<ReadonlyMap<string, GitRepo> | null>> {
  if (!checked.ok || document === null) return NO_GIT;
  const { git } = checked.value;
  const unknown = unknownRepos(workers, git?.repos ?? new Map());
  if (unknown.length > 0) return { ok: false, problems: unknown };
  return git === undefined ? NO_GIT : await resolveGitRepos(git, declaration, exposure, document.problemAt);
}

async function modelsOf(
  { checked, document }: CorralFile,
  workers: Checked<ReadonlyMap<string, WorkerDefinition>>,
  exposure: Exposure | null,
): Promise<Checked<ReadonlyMap<string, ModelProvider>>> {
  if (!checked.ok || document === null || !workers.ok || exposure === null) return { ok: true, value: new Map() };
  return await resolveModels(checked.value.models ?? new Map(), workers.value, exposure, document.problemAt);
}

/** Also checks the names of secrets in every network, and of those that workers may have inside. */
async function secretsOf(
  { checked, document }: CorralFile,
  workers: Checked<ReadonlyMap<string, WorkerDefinition>>,
  exposure: Exposure | null,
): Promise<Checked<ReadonlyMap<string, SecretSource>>> {
  if (!checked.ok || document === null) return { ok: true, value: new Map() };
  const { secrets = new Map(), sandbox } = checked.value;
  const inside = (sandbox?.secrets ?? []).flatMap((name, index) => {
    const fault = secretNameFault(name, [...secrets.keys()]);
    return fault === null ? [] : [document.problemAt(["sandbox", "secrets", index], fault)];
  });
  if (!workers.ok || exposure === null)
    return inside.length > 0 ? { ok: false, problems: inside } : { ok: true, value: new Map() };
  const problems = [
    ...unknownSecrets(sandbox?.network, secrets.keys()).map(({ at, fault }) =>
      document.problemAt(["sandbox", "network", ...at], fault),
    ),
    ...inside,
    ...[...workers.value.values()].flatMap(({ file, needs }) =>
      unknownSecrets(needs.network, secrets.keys()).map(({ at, fault }) => {
        const path = ["sandbox", "network", ...at].join(".");
        return { file, line: 1, column: 1, path, message: fault };
      }),
    ),
  ];
  const resolved = await resolveSecrets(secrets, exposure, document.problemAt);
  if (problems.length === 0) return resolved;
  return { ok: false, problems: resolved.ok ? problems : [...problems, ...resolved.problems] };
}

async function exposureOf(
  projectDir: string,
  declaration: ProjectDeclaration,
  workers: ReadonlyMap<string, WorkerDefinition>,
  { HOME: home }: Env,
): Promise<Exposure> {
  const writable = await writableFolders(projectDir, declaration, workers);
  return { writable, shown: await shownFolders(projectDir, declaration, workers), home };
}

function scriptsOf(workers: ReadonlyMap<string, WorkerDefinition>): string[] {
  return [...workers.values()].flatMap(({ agent }) => (agent?.model.kind === "script" ? [agent.model.file] : []));
}

async function workersOf(
  corral: CorralFile,
  projectDir: string,
  shownDir: string,
  known: KnownNames,
): Promise<CheckedWorkers> {
  if (corral.workers !== null) return await readWorkerTexts(corral.workers, known);
  const dir = await subfolder(corral, "workers", projectDir);
  if (!dir.ok) return dir;
  if (dir.value === null) return { ok: true, value: new Map() };
  return readWorkers(dir.value, join(shownDir, writtenFolder(corral, "workers")), known);
}

/** `fleets/`, or null if a worker may write there, since the worker could have created it. */
function unnamedFleets(projectDir: string, mounts: readonly Mount[]): string | null {
  const folder = join(projectDir, "fleets");
  const writable = mounts.some(({ mode, host }) => mode === "rw" && holds(host, folder));
  return writable ? null : folder;
}

type ProblemAt = YamlDocument["problemAt"];

/**
 * The I/O step of the section `git`. A repository on this machine runs its hooks where it is pushed to, and a program that
 * prints a secret is run as it is: neither may be where a worker could change it.
 */
async function resolveGitRepos(
  { repos }: GitYaml,
  declaration: ProjectDeclaration,
  exposure: Exposure,
  problemAt: ProblemAt,
): Promise<Checked<ReadonlyMap<string, GitRepo>>> {
  const problems: Problem[] = [];
  const resolved = new Map<string, GitRepo>();
  for (const [name, { url, branch, at, credentials = {}, author }] of repos) {
    const key = (...rest: KeyPath): KeyPath => ["git", "repos", name, ...rest];
    const address = parseGitUrl(url);
    const place = placeIn(declaration, at);
    if (!place.ok) problems.push(problemAt(key("at"), place.fault));
    if (!address.ok || !place.ok) continue;
    const twin = [...resolved.values()].find((other) => covers(other.at, place.path) || covers(place.path, other.at));
    if (twin !== undefined) problems.push(problemAt(key("at"), `overlaps with ${twin.at} of \`${twin.name}\``));
    const fault = address.protocol === "file" ? await exposureFault(address.url, exposure.writable) : null;
    if (fault !== null) problems.push(problemAt(key("url"), fault));
    const wrong = await secretFault(sourceOf(credentials), exposure);
    if (wrong !== null) problems.push(problemAt(key("credentials", ...wrong.at), wrong.fault));
    if (Object.keys(credentials).length > 0 && !address.protocol.startsWith("http"))
      problems.push(problemAt(key("credentials"), "are only for https: ssh uses its own keys, and a path needs none"));
    resolved.set(name, {
      name,
      url: address.url,
      protocol: address.protocol,
      branch,
      at: place.path,
      credentials: sourceOf(credentials),
      author: author ?? null,
    });
  }
  return problems.length > 0 ? { ok: false, problems } : { ok: true, value: resolved };
}

/** What Corral itself runs or pushes to on this machine: as much the project's own as `corral.yaml`. */
function placesOnHost(repos: ReadonlyMap<string, GitRepo> | null, home: string | undefined): string[] {
  return [...(repos?.values() ?? [])].flatMap(({ protocol, url, credentials }) => [
    ...(protocol === "file" ? [url] : []),
    ...[secretsPlace(credentials, home)].filter((place) => place !== null),
  ]);
}

/** Workers that name a repository which the project does not have. */
function unknownRepos(workers: ReadonlyMap<string, WorkerDefinition>, repos: ReadonlyMap<string, unknown>): Problem[] {
  return [...workers.values()].flatMap(({ file, git = [] }) =>
    git
      .filter((name) => !repos.has(name))
      .map((name) => {
        const known = repos.size === 0 ? "corral.yaml has none" : `there are: ${[...repos.keys()].join(", ")}`;
        return { file, line: 1, column: 1, path: "git", message: `there is no repository \`${name}\`; ${known}` };
      }),
  );
}

type VirtualPlace = { readonly ok: true; readonly path: VirtualPath } | { readonly ok: false; readonly fault: string };

function placeIn({ mounts }: ProjectDeclaration, raw: string): VirtualPlace {
  const parsed = parseVirtualPath(raw, { mountNames: namesBeforeColon(mounts) });
  return parsed.ok ? parsed : { ok: false, fault: parsed.reason };
}

/** The I/O step of the section `secrets`: what it names may not be where a worker reads or writes. */
async function resolveSecrets(
  declared: SecretsYaml,
  exposure: Exposure,
  problemAt: YamlDocument["problemAt"],
): Promise<Checked<ReadonlyMap<string, SecretSource>>> {
  const problems: Problem[] = [];
  const sources = new Map<string, SecretSource>();
  for (const [name, yaml] of declared) {
    const source = sourceOf(yaml);
    const wrong = await secretFault(source, exposure);
    if (wrong !== null) problems.push(problemAt(["secrets", name, ...wrong.at], wrong.fault));
    if (source !== null) sources.set(name, source);
  }
  return problems.length > 0 ? { ok: false, problems } : { ok: true, value: sources };
}

/** Places of a network that name secrets which `corral.yaml` does not declare, below `network`. */
function unknownSecrets(
  network: RawNetwork | undefined,
  known: Iterable<string>,
): { readonly at: readonly (string | number)[]; readonly fault: string }[] {
  const names = [...known];
  if (network === undefined || typeof network === "boolean") return [];
  return network.allow.flatMap(({ set = {} }: NetworkRule, index) =>
    Object.entries(set).flatMap(([header, { secret }]) => {
      const fault = secretNameFault(secret, names);
      return fault === null ? [] : [{ at: ["allow", index, "set", header, "secret"], fault }];
    }),
  );
}
