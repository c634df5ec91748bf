import { lstat, opendir, readlink, realpath, stat } from "node:fs/promises";
import { basename, isAbsolute, join, relative, resolve } from "node:path";
import { utf8Note } from "../../declarations/place/host-place.ts";
import { loadDeclaredProject, loadProject, type Project } from "../../declarations/project.ts";
import { mountNameFault, nameFault } from "../../declarations/terms/names.ts";
import type { WorkerDefinition } from "../../declarations/worker/worker.ts";
import { DeclarationError, type Problem } from "../../declarations/yaml/problem.ts";
import { NameTaken, writeNewFiles } from "../../files/host/new-files.ts";
import {
  IMPLIED_POLICY,
  type ImpliedPath,
  type ImpliedProject,
  impliedName,
  impliedTexts,
} from "../../operations/implied-project.ts";
import { withArguments, workerNamed } from "../../operations/workers.ts";
import { policiesExist, policiesOf } from "../../run/open/options.ts";
import { holds, parseVirtualPath } from "../../sandbox/virtual-path.ts";
import { present } from "../../text/present.ts";
import { printableLine, shellWord } from "../../text/visible.ts";
import { UsageError } from "../terminal/arguments.ts";
import { say, type Terminal } from "../terminal/terminal.ts";
import { type ImpliedOptions, impliedOptionsIn, limitsIn, namedPath, variablesIn } from "./given-options.ts";

/** The image without `--image`. */
function usualImage({ pip = [], npm = [] }: ImpliedOptions): string {
  if (pip.length > 0) return "corral/python";
  return npm.length > 0 ? "corral/node" : "corral/base";
}

/** `command`: null for a session, which gets a shell. @throws UsageError */
export async function impliedProject(
  options: ImpliedOptions,
  command: readonly string[] | null,
  { cwd, env }: Pick<Terminal, "cwd" | "env">,
): Promise<ImpliedProject> {
  const {
    image = usualImage(options),
    ro = [],
    rw = [],
    allow = [],
    packages = [],
    policy = IMPLIED_POLICY,
    save,
  } = options;
  if (options.apply && options.approve !== undefined) throw new UsageError("use either --apply or --approve");
  if (command?.[0] === "") throw new UsageError("the command after -- has an empty name");
  for (const [option, name] of [["--save", save] as const, ["--name", options.name] as const]) {
    const fault = name === undefined ? null : nameFault(name);
    if (fault !== null) throw new UsageError(`${option} ${printableLine(name ?? "", 80)}: a worker's name ${fault}`);
  }
  if (save !== undefined && options.name !== undefined)
    throw new UsageError("use either --save or --name: a saved worker has the name of its file");
  const paths: ImpliedPath[] = [];
  for (const [mode, raws] of [["ro", ro] as const, ["rw", rw] as const])
    for (const raw of raws) paths.push(await impliedPath(raw, mode, paths, cwd));
  return {
    name: save ?? options.name ?? (command === null ? "session" : impliedName(command)),
    image,
    command: command ?? ["sh"],
    paths,
    allow,
    packages,
    environment: present({ apt: given(options.apt), pip: given(options.pip), npm: given(options.npm) }),
    addresses: options.addresses ?? [],
    limits: limitsIn(options),
    env: variablesIn(options, env),
    workdir: options.workdir ?? null,
    policy,
    isDynamic: options.dynamic === true,
    approval: options.apply ? "approve_all" : (options.approve ?? "interactive"),
    runsCommands: command === null,
  };
}

function given(names: readonly string[] | undefined): readonly string[] | undefined {
  return names === undefined || names.length === 0 ? undefined : names;
}

async function impliedPath(
  raw: string,
  mode: "ro" | "rw",
  others: readonly ImpliedPath[],
  cwd: string,
): Promise<ImpliedPath> {
  const told = `--${mode} ${printableLine(raw, 200)}`;
  if (raw === "") throw new UsageError(`--${mode} names a file or a folder, and its value is empty`);
  const named = await namedPath(raw, cwd);
  const { path } = named;
  const full = resolve(cwd, path);
  const real = await realpath(full).catch(() => full);
  const kind = await stat(full).then(
    (found) => (found.isDirectory() ? "folder" : "file"),
    () => "missing",
  );
  const isInside = !relative(cwd, full).startsWith("..") && !isAbsolute(relative(cwd, full)) && full !== cwd;
  const isMade = mode === "rw" && isInside && kind !== "file";
  if (kind === "missing" && mode === "ro")
    throw new UsageError(`${told}: there is no such file or folder${utf8Note(raw)}`);
  if (kind === "missing" && !isMade)
    throw new UsageError(`${told}: there is no such folder; only one below the working directory is made`);
  // The whole file system has no name; that no worker gets it is said by the rules for all mounts.
  const last = named.name ?? (basename(real) || "host");
  const advice = `write PATH=NAME, such as --${mode} ${shellWord(printableLine(path, 200))}=${mode === "ro" ? "in" : "out"}`;
  if (others.some(({ place }) => place === `/${last}`))
    throw new UsageError(`${told}: another --ro or --rw has the name ${printableLine(last, 200)}; ${advice}`);
  const name = mountName(last, others);
  const fault = mountNameFault(name) ?? placeFault(last);
  if (fault !== null) throw new UsageError(`${told}: the name ${JSON.stringify(last)} ${fault}; ${advice}`);
  return { name, place: `/${last}`, path, mode, create: isMade, file: kind === "file" ? basename(real) : null };
}

/** Most names are good for a mount as they are. Others stay its place, `/My Documents`, and it has a name that is made of them. */
function mountName(last: string, others: readonly ImpliedPath[]): string {
  if (nameFault(last) === null && others.every(({ name }) => name !== last)) return last;
  const plain = last
    .normalize("NFKD")
    .replaceAll(/\p{M}/gu, "")
    .replaceAll(/[^A-Za-z0-9_-]+/g, "-")
    .slice(0, 40);
  const made = plain.replaceAll(/^-+|-+$/g, "") || "folder";
  const names = [made, ...others.map((_, index) => `${made}-${index + 2}`)];
  return names.find((name) => others.every((other) => other.name !== name)) ?? made;
}

/** What is wrong with a name that becomes a place in the cell and stands in rules, or null. */
function placeFault(last: string): string | null {
  if (!last.isWellFormed() || last.includes("\ufffd")) return "is not UTF-8";
  const parsed = parseVirtualPath(`/${last}`);
  if (!parsed.ok) return parsed.reason;
  return parsed.path === `/${last}` ? null : "is no name of a folder";
}

/** What a command line names: a worker of a project, or a command and what it gets. */
export interface NamedWork extends ImpliedOptions {
  readonly project: string;
  readonly worker?: string | undefined;
  /** The words after `--`: the command, or arguments for that of the worker. */
  readonly words?: readonly string[];
}

interface DeclaredWorker {
  readonly project: Project;
  readonly worker: WorkerDefinition;
  /** In place of the project's; an implied project has its own. */
  readonly policy: string | null;
  /** True: no file declares it. */
  readonly isImplied: boolean;
}

/** Reads the project and finds the worker, or makes both of what the command line says. */
export async function declaredWorker(asked: NamedWork, terminal: Terminal): Promise<DeclaredWorker> {
  const { worker, words = [] } = asked;
  if (worker === undefined) return await impliedWorker(asked, words.length === 0 ? null : words, terminal);
  const [foreign] = impliedOptionsIn(asked);
  if (foreign !== undefined)
    throw new UsageError(
      `${foreign} is for a command without a project; what ${worker} gets is in its project's files`,
    );
  const project = await loadProject(asked.project, terminal.env);
  const found = withArguments(workerNamed(worker, project), words);
  return { project, worker: found, policy: asked.policy ?? null, isImplied: false };
}

async function impliedWorker(
  options: ImpliedOptions,
  command: readonly string[] | null,
  terminal: Terminal,
): Promise<DeclaredWorker> {
  const { cwd, env } = terminal;
  const implied = await impliedProject(options, command, terminal);
  const load = () => loadDeclaredProject(cwd, impliedTexts(implied), env);
  let project = await load().catch((error: unknown) => {
    if (!(error instanceof DeclarationError)) throw error;
    // Corral.yaml and the worker's file say the same of the network.
    throw new UsageError([...new Set(error.problems.map((one) => told(one, implied)))].join("\ncorral: "));
  });
  const given = implied.paths.map(({ path }) => resolve(cwd, path));
  for (const line of await linkWarnings(given)) say(terminal, `corral: ${line}`);
  if (options.save !== undefined) {
    refuseOwnFolder(project, options.save);
    // What cannot run is not written.
    await policiesExist(project, policiesOf(project));
    saveProject(implied, terminal);
    // From now on there are files that no worker may write.
    project = await load();
  }
  return { project, worker: workerNamed(implied.name, project), policy: null, isImplied: true };
}

/** A mistake by the option that made it. */
function told(
  { path, message }: Problem,
  { image, allow, packages, environment, addresses, limits, policy, paths, workdir }: ImpliedProject,
): string {
  const [, list = "", at = ""] =
    /^(?:sandbox\.network|environment)\.(allow|packages|apt|pip|npm|addresses)\.(\d+)/.exec(path) ?? [];
  const said = { allow, packages, addresses, ...environment }[list]?.[Number(at)];
  const [, section = "", key = ""] = /^(limits|env)\.([^.]+)$/.exec(path) ?? [];
  const mount = paths.find(({ name }) => path.startsWith(`sandbox.paths.${name}.`));
  const option =
    said !== undefined
      ? `--${list} ${said}`
      : mount !== undefined
        ? `--${mount.mode} ${mount.path}`
        : path === "image"
          ? `--image ${image}`
          : path === "policy"
            ? `--policy ${policy}`
            : path === "sandbox.working_dir"
              ? `--workdir ${workdir}`
              : section === "limits"
                ? `--${key} ${limits[key]}`
                : section === "env"
                  ? `--env ${key}`
                  : path;
  return `${printableLine(option, 200)}: ${list === "allow" ? asOption(message) : message}`;
}

/** A rule that a file would have, as it is typed. */
function asOption(message: string): string {
  const rule = /`\{ to: "([^"]+)", addresses: \[([^\]]+)\] \}`/;
  return message.replace(rule, (_, to, ranges) => `\`--allow ${to}=${ranges.replaceAll(/[" ]/g, "")}\``);
}

/** A project's worker cannot write the folder that says what it may do. */
function refuseOwnFolder({ dir, declaration }: Project, name: string): void {
  const around = declaration.mounts.find(({ mode, host }) => mode === "rw" && holds(host, dir));
  if (around === undefined) return;
  const advice = "give the command a folder below this one, or use --save in another folder";
  throw new UsageError(
    `--save ${name} makes this folder a project, whose worker cannot write the project's own files, and ${around.path} has them; ${advice}`,
  );
}

/** Writes what was said as files of a project, in the working directory. */
function saveProject(implied: ImpliedProject, terminal: Terminal): void {
  const { name, runsCommands } = implied;
  const { corral, workers } = impliedTexts(implied);
  const files = new Map([
    ["corral.yaml", corral],
    ...[...workers].map(([worker, text]) => [`workers/${worker}.worker`, text] as const),
  ]);
  try {
    writeNewFiles(terminal.cwd, files);
  } catch (error) {
    if (error instanceof NameTaken) throw new UsageError(`--save overwrites nothing, and ${error.message} here`);
    throw error;
  }
  const again = runsCommands ? `corral mcp --worker ${name}` : `corral run ${name}`;
  say(terminal, `corral: wrote ${[...files.keys()].join(" and ")}; \`${again}\` does the same`);
}

/** A large folder is not held up by the search; what lies later is not announced. */
const MAX_SEEN = 2000;

/**
 * A line about symbolic links of a folder that lead out of it, and so to nothing, or to something of the cell's own; null if none was found among the first
 * entries. A link that is absolute means another place in the cell, even if it leads back into the folder here.
 */
export async function outwardLinks(folder: string): Promise<string | null> {
  const found: string[] = [];
  const waiting = [folder];
  let seen = 0;
  for (let dir = waiting.shift(); dir !== undefined && seen < MAX_SEEN; dir = waiting.shift()) {
    const entries = await opendir(dir).catch(() => null);
    if (entries === null) continue;
    for await (const entry of entries) {
      seen += 1;
      if (seen > MAX_SEEN) break;
      const path = join(dir, entry.name);
      if (entry.isDirectory()) waiting.push(path);
      else if (entry.isSymbolicLink() && (await leadsOut(path, dir, folder))) found.push(relative(folder, path));
    }
  }
  const [first] = found;
  if (first === undefined) return null;
  const others = found.length === 1 ? "" : ` and ${found.length - 1} more`;
  const [what, show] = found.length === 1 ? ["a link leads", "shows"] : ["links lead", "show"];
  return `${what} out of ${printableLine(folder, 200)} and ${show} nothing of this machine: ${printableLine(first, 200)}${others}`;
}

async function leadsOut(path: string, dir: string, folder: string): Promise<boolean> {
  const target = await readlink(path).catch(() => "");
  if (isAbsolute(target)) return true;
  const inside = relative(folder, resolve(dir, target));
  return inside === ".." || inside.startsWith("../");
}

/** Of the paths that are folders. */
async function linkWarnings(paths: readonly string[]): Promise<string[]> {
  const lines = await Promise.all(
    paths.map(async (path) => {
      const isFolder = await lstat(`${path}/`).then(
        (one) => one.isDirectory(),
        () => false,
      );
      return isFolder ? await outwardLinks(path) : null;
    }),
  );
  return lines.filter((line) => line !== null);
}
