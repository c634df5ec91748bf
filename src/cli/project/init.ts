import { mkdir, readdir } from "node:fs/promises";
import { relative, resolve } from "node:path";
import { NameTaken } from "../../files/host/new-files.ts";
import { CI_TEMPLATES, type CiTemplate, makeCi } from "../../operations/ci/new-ci.ts";
import {
  makeProject,
  PROJECT_KINDS,
  type ProjectKind,
  type ProjectTemplate,
} from "../../operations/implied-project.ts";
import { printableLine, shellWord } from "../../text/visible.ts";
import { UsageError } from "../terminal/arguments.ts";
import { EXIT, printJson, type Terminal } from "../terminal/terminal.ts";

interface InitOptions {
  readonly json?: boolean;
  readonly npm?: boolean;
  readonly python?: boolean;
  readonly go?: boolean;
  readonly make?: boolean;
}

/** `corral init`: writes a project that runs as it is, and says what to type next. */
export async function initVerb(
  said: string | undefined,
  dir: string,
  options: InitOptions,
  terminal: Terminal,
): Promise<number> {
  const kind = said ?? (await askedKind(terminal));
  if (kind === null) return EXIT.cancelled;
  if (!isKind(kind))
    throw new UsageError(`there is no kind ${printableLine(kind, 80)} of project; there are: ${KINDS}`);
  const tools = CI_TEMPLATES.filter((tool) => options[tool]);
  if (kind === "ci") return await writtenCi(tools, dir, options, terminal);
  if (tools.length > 0) throw new UsageError(`--${tools[0]} is for corral init ci`);
  return await writtenProject(kind, PROJECT_KINDS[kind].next, dir, options, terminal);
}

/** Into a folder that has a project, what tests it; into another one, a small project as well. */
async function writtenCi(
  tools: readonly CiTemplate[],
  dir: string,
  { json }: InitOptions,
  terminal: Terminal,
): Promise<number> {
  const [tool = null, ...more] = tools;
  if (more.length > 0) throw new UsageError(`use either --${tool} or --${more[0]}`);
  const folder = resolve(terminal.cwd, dir);
  await mkdir(folder, { recursive: true });
  const present = await readdir(folder);
  const { files } = await refusingTaken("init ci", async () => await makeCi(tool, folder, present));
  const commit = [
    "git init --quiet",
    `git add ${files.map(shellWord).join(" ")}`,
    'git commit --message "Tests in Corral"',
  ];
  const next = [...commit, ...PROJECT_KINDS.ci.next];
  if (json) printJson(terminal, { kind: "ci", dir: folder, files, next });
  else terminal.stdout.write(`${[...listOf(files), ...nextLines(folder, next, terminal)].join("\n")}\n`);
  return 0;
}

/** Writes a project of the package, and names commands to type `next`. */
export async function writtenProject(
  kind: ProjectTemplate,
  next: readonly string[],
  dir: string,
  { json }: { readonly json?: boolean | undefined },
  terminal: Terminal,
): Promise<number> {
  const folder = resolve(terminal.cwd, dir);
  await mkdir(folder, { recursive: true });
  const verb = kind === "convert" ? "convert --init" : `init ${kind}`;
  const { files, schemas } = await refusingTaken(verb, async () => await makeProject(kind, folder));
  if (json) {
    printJson(terminal, { kind, dir: folder, files, schemas, next });
    return 0;
  }
  const lines = [...listOf(files), `and their formats for editors, in ${schemas}/`];
  terminal.stdout.write(`${[...lines, ...nextLines(folder, next, terminal)].join("\n")}\n`);
  return 0;
}

function listOf(files: readonly string[]): readonly string[] {
  return [`Wrote ${files.length} files:`, ...files.map((file) => `  ${file}`)];
}

function nextLines(folder: string, next: readonly string[], { cwd }: Terminal): readonly string[] {
  const shown = relative(cwd, folder);
  const go = shown === "" ? [] : [`cd ${shellWord(printableLine(shown, 500))}`];
  return ["Next:", ...[...go, ...next].map((line) => `  ${line}`)];
}

async function refusingTaken<Made>(verb: string, make: () => Promise<Made>): Promise<Made> {
  try {
    return await make();
  } catch (error) {
    if (!(error instanceof NameTaken)) throw error;
    throw new UsageError(`init overwrites nothing, and ${error.message}; name another folder: corral ${verb} FOLDER`);
  }
}

/** Null if the user stops the question. */
async function askedKind({ stdin, stderr }: Terminal): Promise<string | null> {
  if (!stdin.isTTY || !stderr.isTTY)
    throw new UsageError(`name a kind of project: corral init ${KINDS.replaceAll(", ", "|")}`);
  const { isCancel, select } = await import("@clack/prompts");
  const options = Object.entries(PROJECT_KINDS).map(([value, { does }]) => ({ value, label: value, hint: does }));
  const answer = await select({ message: "What is the project for?", options, input: stdin, output: stderr });
  return isCancel(answer) ? null : answer;
}

const KINDS = Object.keys(PROJECT_KINDS).join(", ");

function isKind(kind: string): kind is ProjectKind {
  return Object.hasOwn(PROJECT_KINDS, kind);
}
