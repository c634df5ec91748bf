import { readdir } from "node:fs/promises";
import { join, resolve } from "node:path";
import type { Argument, Command, Option } from "commander";
import { foundProject } from "../../declarations/place/host-place.ts";
import { PACKAGE_ROOT } from "../../declarations/place/package-root.ts";
import { readDeclarationFile } from "../../declarations/yaml/document.ts";
import { textBeside } from "../../platform/text-beside.ts";
import { projectPaths, stateDirFrom, statePaths } from "../../state/state-dir.ts";
import { printableLine } from "../../text/visible.ts";
import { projectFolder } from "../terminal/arguments.ts";
import type { Terminal } from "../terminal/terminal.ts";

/** The shells for which there is a script. */
export const COMPLETED_SHELLS = ["bash", "zsh", "fish"] as const;

export type CompletedShell = (typeof COMPLETED_SHELLS)[number];

export type NameKind =
  | "workers"
  | "policies"
  | "fleet_files"
  | "fleets"
  | "transcripts"
  | "runs"
  | "changesets"
  | "grants"
  | "approvals"
  | "tools";

export interface NamesPlace {
  /** As `--project` says; null: the nearest. */
  readonly project: string | null;
  readonly cwd: string;
  readonly env: Readonly<Record<string, string | undefined>>;
}

/** The most names of one kind. */
const MAX_NAMES = 1000;

/** The names that exist, for completion: from names of files as far as possible. Reads no declaration, and writes nothing. */
export async function namesOf(kind: NameKind, place: NamesPlace): Promise<readonly string[]> {
  return (await NAMES[kind](place)).slice(0, MAX_NAMES);
}

const NAMES: Readonly<Record<NameKind, (place: NamesPlace) => Promise<readonly string[]>>> = {
  workers: async (place) => await stems(await ownFolder("workers", place), ".worker"),
  fleet_files: async (place) => await stems(await ownFolder("fleets", place), ".yaml"),
  policies: async (place) => [
    ...(await stems(join(PACKAGE_ROOT, "policies"), ".yaml")),
    ...(await stems(await ownFolder("policies", place), ".yaml")),
  ],
  transcripts: async (place) => await stems((await kept(place))?.transcripts ?? null, ".jsonl"),
  runs: async (place) => {
    const { runFolders } = await import("../../history/recording.ts");
    const paths = await kept(place);
    return paths === null ? [] : (await runFolders(paths.runs)).map(({ run }) => run);
  },
  changesets: async ({ env }) =>
    (await stems(statePaths(stateDirFrom(env)).changes, "")).filter((name) => /^[0-9a-f]{12}$/.test(name)),
  grants: async ({ env }) => {
    const { listGrants } = await import("../../operations/approvals.ts");
    return (await listGrants(stateDirFrom(env))).map(({ id }) => id);
  },
  approvals: async ({ env }) => {
    const { inbox } = statePaths(stateDirFrom(env));
    const ids = await Promise.all(
      (await stems(inbox, "")).map(async (mark) => {
        const over = new Set(await stems(join(inbox, mark), ".end"));
        return (await stems(join(inbox, mark), ".question")).filter((id) => !over.has(id));
      }),
    );
    return ids.flat();
  },
  fleets: async (place) => await fleetIds(place),
  tools: async () => (await import("../../declarations/worker/tool-names.ts")).TOOL_NAMES,
};

/** The names of files with this ending; `null`: there is no such folder. A file called `--json` would be an option. */
async function stems(dir: string | null, ending: string): Promise<string[]> {
  const names = dir === null ? [] : await readdir(dir).catch(() => []);
  return names
    .filter((name) => name.endsWith(ending) && /^[A-Za-z0-9_]/.test(name))
    .map((name) => name.slice(0, name.length - ending.length))
    .toSorted();
}

async function projectDir({ project, cwd }: NamesPlace): Promise<string | null> {
  if (project !== null) return resolve(cwd, project);
  const found = await foundProject(cwd);
  return found.found ? found.dir : null;
}

/** The folder that `corral.yaml` names in a line of its own, or the usual one. Only a person's own words come from it: names of files. */
async function ownFolder(key: "workers" | "fleets" | "policies", place: NamesPlace): Promise<string | null> {
  const dir = await projectDir(place);
  if (dir === null) return null;
  const text = await readDeclarationFile(join(dir, "corral.yaml"), "corral.yaml").catch(() => "");
  const written = new RegExp(`^${key}:[ \\t]+["']?([^"'#\\r\\n]+?)["']?[ \\t]*(?:#.*)?$`, "m").exec(text)?.[1];
  if (written === undefined) return key === "policies" ? null : join(dir, key);
  return resolve(dir, written);
}

async function kept(place: NamesPlace) {
  const dir = await projectDir(place);
  if (dir === null) return null;
  return projectPaths(stateDirFrom(place.env), await projectFolder(dir, place));
}

/** Those of this machine's journal. A key must not wait for a database elsewhere, and a project that never had a fleet gets no journal here. */
async function fleetIds(place: NamesPlace): Promise<readonly string[]> {
  const paths = await kept(place);
  if (paths === null || (await stems(join(paths.fleets, ".."), ".db")).length === 0) return [];
  const { openFleetStoreAt } = await import("../../fleet/fleet-stores.ts");
  await using store = await openFleetStoreAt(paths.fleets);
  return (await store.list(MAX_NAMES)).map(({ id }) => id);
}

/** How a word may continue. `files` and `folders`: the shell completes paths itself. */
type Continued = { readonly kind: "files" | "folders" } | { readonly kind: "words"; readonly words: readonly Word[] };

interface Word {
  readonly word: string;
  readonly meaning?: string;
}

const MAX_WORDS = 1000;
/** Nothing that a shell would read as anything but a word, whatever a file is called. */
const SAFE = /^[A-Za-z0-9_./=+-]{1,300}$/;

/** `corral complete`: never fails, and prints nothing but safe words. `words`: those after `corral`, up to the cursor. */
export async function completeVerb(
  shell: CompletedShell,
  words: readonly string[],
  program: Command,
  terminal: Terminal,
): Promise<number> {
  const { head, continued } = await continuedAt(shell === "bash" ? joined(words) : words, program, terminal).catch(
    () => ({ head: "", continued: NOTHING }),
  );
  const lines =
    continued.kind !== "words"
      ? []
      : continued.words.map(({ word, meaning = "" }) => {
          // bash replaces only what is behind the `=`.
          const whole = shell === "bash" ? word : head + word;
          return meaning === "" ? whole : `${whole}\t${printableLine(meaning, 80)}`;
        });
  terminal.stdout.write(`${[continued.kind, ...lines].join("\n")}\n`);
  return 0;
}

const NOTHING: Continued = { kind: "words", words: [] };

/** bash takes `=` for a word of its own. */
function joined(words: readonly string[]): string[] {
  const whole: string[] = [];
  for (const word of words) {
    const last = whole.at(-1);
    if (last?.startsWith("--") && (word === "=" || last.endsWith("="))) whole[whole.length - 1] = last + word;
    else whole.push(word);
  }
  return whole;
}

interface Place {
  readonly command: Command;
  /** The option whose value comes next. */
  readonly pending: Option | null;
  /** How many arguments were there before. */
  readonly given: number;
  /** After `--`. */
  readonly isRest: boolean;
  /** As written, by `--project`. */
  readonly project: string | null;
}

async function continuedAt(
  words: readonly string[],
  program: Command,
  terminal: Terminal,
): Promise<{ head: string; continued: Continued }> {
  const place = placeAfter(words.slice(0, -1), program);
  const { command, pending, given, isRest, project } = place;
  const current = words.at(-1) ?? "";
  const [, head = "", name = "", value = ""] = /^((--[\w-]+)=)(.*)$/s.exec(current) ?? [];
  const answer = async (whose: Option | Argument | null | undefined, prefix: string): Promise<Continued> => {
    const words = await valuesOf(whose, command, { project: plain(project, terminal), terminal });
    return words.kind === "words" ? { kind: "words", words: fitting(words.words, prefix) } : words;
  };
  if (isRest) return { head: "", continued: { kind: "files" } };
  if (pending !== null) return { head: "", continued: await answer(pending, current) };
  if (head !== "") return { head, continued: await answer(optionOf(command, name), value) };
  if (current.startsWith("-"))
    return { head: "", continued: { kind: "words", words: fitting(optionsOf(command), current) } };
  if (command.commands.length > 0)
    return { head: "", continued: { kind: "words", words: fitting(commandsOf(command), current) } };
  const { registeredArguments: all } = command;
  const last = all.at(-1);
  return { head: "", continued: await answer(all[given] ?? (last?.variadic ? last : null), current) };
}

function fitting(words: readonly Word[], prefix: string): readonly Word[] {
  return words.filter(({ word }) => word.startsWith(prefix) && SAFE.test(word)).slice(0, MAX_WORDS);
}

/** What the words before the cursor have decided, as commander reads them. */
function placeAfter(words: readonly string[], program: Command): Place {
  let place: Place = { command: program, pending: null, given: 0, isRest: false, project: null };
  for (const word of words) {
    const { command, pending, given } = place;
    if (place.isRest) continue;
    if (pending !== null && !(pending.optional && word.startsWith("-"))) {
      place = { ...place, pending: null, project: pending.long === "--project" ? word : place.project };
      continue;
    }
    place = { ...place, pending: null };
    const [, name = word, value] = /^(--[\w-]+)=(.*)$/s.exec(word) ?? [];
    const below = given === 0 ? command.commands.find((one) => one.name() === word) : undefined;
    if (word === "--") place = { ...place, isRest: true };
    else if (value !== undefined && name === "--project") place = { ...place, project: value };
    else if (word.startsWith("-") && word !== "-") {
      const option = optionOf(command, name);
      if (value === undefined && option !== null && (option.required || option.optional))
        place = { ...place, pending: option };
    } else if (below !== undefined) place = { ...place, command: below };
    else place = { ...place, given: given + 1 };
  }
  return place;
}

function optionOf(command: Command, name: string): Option | null {
  return command.options.find(({ long, short }) => long === name || short === name) ?? null;
}

function optionsOf(command: Command): Word[] {
  const options = command.options.filter(({ hidden }) => !hidden);
  const words = options.map(({ long, short, description }) => ({ word: long ?? short ?? "", meaning: description }));
  return [...words, { word: "--help", meaning: "print this help" }];
}

function commandsOf(command: Command): Word[] {
  const visible = command.createHelp().visibleCommands(command);
  return visible.map((one) => ({ word: one.name(), meaning: one.description() }));
}

/** By the name of the value in the help, so that a new command needs nothing here. */
const KINDS: Readonly<Record<string, NameKind | "files" | "folders">> = {
  worker: "workers",
  policy: "policies",
  run: "transcripts",
  file: "files",
  "path[=name]": "files",
  dir: "folders",
  folder: "folders",
};

/** What `<id>` and `<name>` are depends on the command, or on the option. */
const KINDS_BY_OWNER: Readonly<Record<string, NameKind>> = {
  "fleet id": "fleets",
  "fleet ids": "fleets",
  "changes id": "changesets",
  "changes ids": "changesets",
  "grants id": "grants",
  "grants run": "runs",
  "approvals id": "approvals",
  "runs id": "runs",
  "runs ids": "runs",
  "--run id": "runs",
  "--worker name": "workers",
  "--policy name": "policies",
  "--fleet name": "fleet_files",
  "--fleet id": "fleets",
  "tool name": "tools",
};

async function valuesOf(
  whose: Option | Argument | null | undefined,
  command: Command,
  { project, terminal }: { readonly project: string | null; readonly terminal: Terminal },
): Promise<Continued> {
  if (!whose) return NOTHING;
  if (whose.argChoices !== undefined) return { kind: "words", words: whose.argChoices.map((word) => ({ word })) };
  const isOption = "long" in whose;
  const value = isOption ? (/[<[](.*?)[\]>]$/.exec(whose.flags)?.[1] ?? "") : whose.name();
  const owners = isOption ? [whose.long ?? ""] : [command.name(), command.parent?.name() ?? ""];
  const kind =
    owners.map((owner) => KINDS_BY_OWNER[`${owner} ${value}`]).find(Boolean) ?? KINDS[value.replace(/\.\.\.$/, "")];
  if (kind === undefined) return NOTHING;
  if (kind === "files" || kind === "folders") return { kind };
  const names = await namesOf(kind, { project, cwd: terminal.cwd, env: terminal.env });
  return { kind: "words", words: names.map((word) => ({ word })) };
}

/** A word as the shell would read it. Null: it has what only the shell can expand, or nothing is written. */
function plain(raw: string | null, { env }: Terminal): string | null {
  if (raw === null || /[$`]/.test(raw)) return null;
  const home = raw.startsWith("~/") && env.HOME ? env.HOME + raw.slice(1) : raw;
  return home.replaceAll(/\\(.)|["']/gs, "$1");
}

/** `corral completion`: the script for one shell. */
export async function completionVerb(shell: CompletedShell, { stdout }: Pick<Terminal, "stdout">): Promise<number> {
  stdout.write(SCRIPTS[shell]);
  return 0;
}

/*
 * Each script asks `corral complete SHELL -- WORDS`, with the word at the cursor as the last. The first line of the answer says
 * `words`, `files` or `folders`; each further line is a word, a tab and what it means. No script evaluates what it reads.
 */

const SCRIPTS: Readonly<Record<CompletedShell, string>> = {
  bash: textBeside(import.meta.url, "completion.bash"),
  zsh: textBeside(import.meta.url, "completion.zsh"),
  fish: textBeside(import.meta.url, "completion.fish"),
};
