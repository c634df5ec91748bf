import { mkdir } from "node:fs/promises";
import { relative, resolve } from "node:path";
import { NameTaken } from "../../files/host/new-files.ts";
import {
  makeProject,
  type NewProject,
  PROJECT_KINDS,
  type ProjectKind,
  type ProjectTemplate,
} from "../../operations/implied-project.ts";
import { shellWord } from "../../platform/shell-word.ts";
import { printableLine } from "../../text/visible.ts";
import { UsageError } from "../terminal/arguments.ts";
import { EXIT, printJson, type Terminal } from "../terminal/terminal.ts";

/** `corral init`: writes a project that runs as it is, and says what to type next. */
export async function initVerb(
  said: string | undefined,
  dir: string,
  { json }: { readonly json?: boolean },
  terminal: Terminal,
): Promise<number> {
  const kind = said ?? (await askedKind(terminal));
  if (kind === null) return EXIT.cancelled;
  if (!isKind(kind))
    throw new UsageError(`there is no kind ${printableLine(kind, 80)} of project; there are: ${KINDS}`);
  return await writtenProject(kind, PROJECT_KINDS[kind].next, dir, { json }, terminal);
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
  const { files, schemas } = await written(kind, folder);
  if (json) {
    printJson(terminal, { kind, dir: folder, files, schemas, next });
    return 0;
  }
  const shown = relative(terminal.cwd, folder);
  const go = shown === "" ? [] : [`  cd ${shellWord(printableLine(shown, 500))}`];
  const lines = [
    `Wrote ${files.length} files:`,
    ...files.map((file) => `  ${file}`),
    `and their formats for editors, in ${schemas}/`,
    "Next:",
    ...go,
  ];
  terminal.stdout.write(`${[...lines, ...next.map((line) => `  ${line}`)].join("\n")}\n`);
  return 0;
}

async function written(kind: ProjectTemplate, folder: string): Promise<NewProject> {
  try {
    return await makeProject(kind, folder);
  } catch (error) {
    if (!(error instanceof NameTaken)) throw error;
    throw new UsageError(
      `init overwrites nothing, and ${error.message}; name another folder: corral ${kind === "convert" ? "convert --init" : `init ${kind}`} FOLDER`,
    );
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
