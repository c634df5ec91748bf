import type { Argument, Command, Option } from "commander";
import { printableLine } from "../../text/visible.ts";
import type { Terminal } from "../terminal/terminal.ts";
import type { CompletedShell } from "./kinds.ts";
import { type NameKind, namesOf } from "./known-names.ts";

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
