import { relative } from "node:path";
import { type Command, Option } from "commander";
import { printableLine } from "../../text/visible.ts";
import { impliedOptionsIn, LIMIT_OPTIONS } from "../declared/given-options.ts";
import { UsageError } from "../terminal/arguments.ts";
import type { Terminal } from "../terminal/terminal.ts";
import { repeatable } from "./frame.ts";

/** The options that say what a command gets without a project, in the order of the help. */
export function withoutProject(verb: Command): Command {
  const options = [
    new Option("--image <name>", "run it in this image (corral/base)"),
    repeatable("--ro <path[=name]>", "show this folder or file at /NAME, read-only"),
    repeatable("--rw <path[=name]>", "the same, writable: what changes is shown and asked about"),
    new Option("--dynamic", "let it ask for other folders while it runs"),
    repeatable("--allow <host:port>", "let it reach this host"),
    repeatable("--packages <preset>", "let it reach this registry, such as npm or pypi"),
    repeatable("--apt <package>", "add this package of Debian to the image"),
    repeatable("--pip <package>", "give it this package of Python, such as lxml==5.3.0"),
    repeatable("--npm <package>", "give it this package of npm, such as cowsay@1.6.0"),
    repeatable("--addresses <range>", "where registries of packages are, if not at public addresses"),
    ...Object.entries(LIMIT_OPTIONS).map(([key, help]) => new Option(`--${key} <limit>`, help)),
    repeatable("--env <name[=value]>", "set this variable; without a value to the one that it has here"),
    new Option("--workdir <path>", "where the command starts, such as /inbox (/)"),
    new Option("--name <name>", "call it so, in place of its program's name"),
    new Option("--apply", "apply what changes without asking"),
  ];
  for (const option of options) verb.addOption(option.helpGroup(GROUP));
  return verb;
}

const GROUP = "Without a project:";

/** Of a verb that takes a command: writes what was said as a project. */
export function save(): Option {
  const write = new Option("--save <name>", "write all this as corral.yaml and workers/NAME.worker here");
  return write.helpGroup(GROUP);
}

/**
 * What a command line says before `--`, and the words after it. Commander gives both together.
 *
 * The words are a command of their own, or arguments of a worker's: options of Corral end at `--`.
 */
function aroundDashes(command: Command): {
  readonly before: readonly string[];
  readonly words: readonly string[];
} {
  const raw = rootOf(command).rawArgs;
  const { args } = command;
  const at = raw.indexOf("--");
  const words = at < 0 ? [] : raw.slice(at + 1);
  const start = args.length - words.length;
  // The value of an option can be `--` as well; then it is not the end of the options.
  const isEnd = start >= 0 && words.every((word, index) => args[start + index] === word);
  return isEnd ? { before: args.slice(0, start), words } : { before: args, words: [] };
}

/** The worker before `--`, if any, and the words after it; one of them is needed. */
export function oneWorker(command: Command): {
  readonly worker: string | undefined;
  readonly words: readonly string[];
} {
  const { before, words } = aroundDashes(command);
  const [worker, extra] = before;
  if (extra !== undefined) throw new UsageError(`write -- before the arguments of ${worker}, or before a command`);
  if (worker === undefined && words.length === 0)
    throw new UsageError(
      `name a worker, or write a command after --, such as \`corral ${command.name()} --ro inbox -- ls /inbox\``,
    );
  return { worker, words };
}

/**
 * True if the command line itself says what the command, the shell or the client gets, so that no project is looked for.
 *
 * @throws UsageError if it names a project as well, or nothing to run
 */
export function isWithoutProject(command: Command): boolean {
  // A verb of a group, such as that of `corral ci run`, is another one.
  if (command.parent !== rootOf(command)) return false;
  const isIt = TAKES_COMMAND.has(command.name())
    ? oneWorker(command).worker === undefined
    : TAKES_OPTIONS.has(command.name()) && isNameless(command) && impliedOptionsIn(command.opts()).length > 0;
  if (isIt && [command, rootOf(command)].some((one) => one.getOptionValueSource("project") === "cli"))
    throw new UsageError("--project is for a worker of that project; without a worker, leave it out");
  return isIt;
}

const TAKES_COMMAND = new Set(["run", "explain"]);
const TAKES_OPTIONS = new Set(["shell", "mcp", "tool"]);

/** No worker is named, as an argument or by `--worker`. */
function isNameless(command: Command): boolean {
  return command.name() === "shell" ? command.args.length === 0 : command.opts().worker === undefined;
}

function rootOf(command: Command): Command & { readonly rawArgs: readonly string[] } {
  let root = command;
  while (root.parent !== null) root = root.parent;
  return root as Command & { readonly rawArgs: readonly string[] };
}

/**
 * The folder of the project in which the user works, relative to the working directory. `orHere`: the working directory itself
 * if there is none.
 */
export async function nearestProject({ cwd }: Pick<Terminal, "cwd">, { orHere }: { orHere: boolean }): Promise<string> {
  const { foundProject } = await import("../../declarations/place/host-place.ts");
  const project = await foundProject(cwd);
  if (project.found) return relative(cwd, project.dir) || ".";
  if (orHere) return ".";
  if (project.foreign === null)
    throw new UsageError(
      `No corral.yaml in ${printableLine(cwd, 500)} or its parents. \`corral init\` makes a project, \`corral run --ro FOLDER -- COMMAND\` needs none, and --project names the folder of one`,
    );
  throw new UsageError(
    `${printableLine(project.foreign, 500)} belongs to another user. If you trust it, name its folder with --project`,
  );
}
