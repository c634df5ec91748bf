import { loadDeclaredProject, loadProject, type Project } from "../../declarations/project.ts";
import type { WorkerDefinition } from "../../declarations/worker/worker.ts";
import { DeclarationError, type Problem } from "../../declarations/yaml/problem.ts";
import { NameTaken, writeNewFiles } from "../../files/host/new-files.ts";
import { type ImpliedProject, impliedTexts } from "../../operations/implied-project.ts";
import { withArguments, workerNamed } from "../../operations/named-worker.ts";
import { printableLine } from "../../text/visible.ts";
import { UsageError } from "../terminal/arguments.ts";
import { say, type Terminal } from "../terminal/terminal.ts";
import { type ImpliedOptions, impliedOptionsIn } from "./given-options.ts";
import { impliedProject } from "./implied-options.ts";

/** What a command line names: a worker of a project, or a command and what it gets. */
export interface Asked extends ImpliedOptions {
  readonly project: string;
  readonly worker?: string | undefined;
  /** The words after `--`: the command, or arguments for that of the worker. */
  readonly words?: readonly string[];
}

export interface DeclaredWorker {
  readonly project: Project;
  readonly worker: WorkerDefinition;
  /** In place of the project's; an implied project has its own. */
  readonly policy: string | null;
  /** True: no file declares it. */
  readonly isImplied: boolean;
}

/** Reads the project and finds the worker, or makes both of what the command line says. */
export async function declaredWorker(asked: Asked, terminal: Terminal): Promise<DeclaredWorker> {
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
  const implied = await impliedProject(options, command, cwd);
  const load = () => loadDeclaredProject(cwd, impliedTexts(implied), env);
  let project = await load().catch((error: unknown) => {
    if (!(error instanceof DeclarationError)) throw error;
    // Corral.yaml and the worker's file say the same of the network.
    throw new UsageError([...new Set(error.problems.map((one) => told(one, implied)))].join("\ncorral: "));
  });
  if (options.save !== undefined) {
    refuseOwnFolder(project, options.save);
    saveProject(implied, terminal);
    // From now on there are files that no worker may write.
    project = await load();
  }
  return { project, worker: workerNamed(implied.name, project), policy: null, isImplied: true };
}

/** A mistake by the option that made it. */
function told({ path, message }: Problem, { image, allow, packages, policy, paths }: ImpliedProject): string {
  const [, list = "", at = ""] = /^sandbox\.network\.(allow|packages)\.(\d+)/.exec(path) ?? [];
  const said = { allow, packages }[list]?.[Number(at)];
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
            : path;
  return `${printableLine(option, 200)}: ${message}`;
}

/** A project's worker cannot write the folder that says what it may do. */
function refuseOwnFolder({ dir, declaration }: Project, name: string): void {
  const around = declaration.mounts.find(({ mode, host }) => mode === "rw" && `${dir}/`.startsWith(`${host}/`));
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
