import type pc from "picocolors";
import { type Answer, type ApprovalOperation, isGrant } from "../../approval/approver.ts";
import { type ConsentSubject, type Lasting, lastingOf, mayBeOnce } from "../../approval/memory.ts";
import type { RunResult } from "../../run/model/result.ts";
import type { DeniedTraffic } from "../../sandbox/network/judge.ts";
import { lookAlikeTexts } from "../../text/look-alike.ts";
import { printable, printableLine, unidirectional, visibleName } from "../../text/visible.ts";

/** Of paths and of lines of a diff, how many are shown above the question. */
interface Room {
  readonly paths: number;
  readonly diffLines: number;
}

/** At a terminal, where the user can ask for the rest. */
const SOME: Room = { paths: 20, diffLines: 60 };
/** For a form, which cannot show more later. */
export const EVERYTHING: Room = { paths: Number.POSITIVE_INFINITY, diffLines: Number.POSITIVE_INFINITY };
const MAX_NAMED_IN_HINT = 60;

/** A question as a person is asked it. */
export type AskedOfPerson = ConsentSubject & { readonly runs: number };

export interface QuestionText {
  /** The text above the question: its subject, and what would not fit into it. */
  readonly above: readonly string[];
  /** What of that is only shown when it is asked for. */
  readonly rest: readonly string[];
  readonly message: string;
}

/** All of what is shown was chosen by a worker, but for these words: none of it can move the cursor or begin a line. */
export function questionText(question: AskedOfPerson, columns: number, colors: Colors, room = SOME): QuestionText {
  const { worker, through = [], runs } = question;
  const of = runs > 1 ? ` (${runs} runs of it)` : "";
  const asks = `Worker ${printableLine(worker, 80)}${of} asks to`;
  const short = `${asks} ${shortDeed(question)}. Allow it?`;
  const fits = isPlain(question) && widthOf(short) <= columns - 4;
  const subject = fits ? { above: [], rest: [] } : subjectLines(question, columns, room);
  const alike = lookAlikeTexts(placesOf(question)).flatMap((text) => quotedLines(`careful: ${text}`, columns));
  const callers = through.slice(0, -1).map((name) => printableLine(name, 80));
  const called = callers.length === 0 ? [] : quotedLines(`called through ${callers.join(" > ")}`, columns);
  const from =
    question.machine === undefined ? [] : quotedLines(`on the machine ${printableLine(question.machine, 80)}`, columns);
  const why = question.why === undefined ? [] : quotedLines(`reason: ${printableLine(question.why, 500)}`, columns);
  const diff = diffLines(question.diff, columns, colors, room);
  const executed = executedLines(question, columns, colors, room);
  const about = [...called, ...from, ...why, ...reachedLines(question, columns)];
  return {
    above: [...executed.above, ...alike, ...subject.above, ...about, ...diff.above],
    rest: [...executed.rest, ...subject.rest, ...diff.rest],
    message: fits ? short : `${asks} ${longDeed(question)}. Allow it?`,
  };
}

/** What is asked, in a few words for a list. */
export function shortQuestion(question: ConsentSubject): string {
  if (question.command !== undefined) return `run ${shownCommand(question.command)}`;
  return shortDeed(question);
}

/** What it has, so that a person sees what the host would be added to. */
function reachedLines({ to, reaches = [] }: ConsentSubject, columns: number): string[] {
  if (to === undefined) return [];
  const had = reaches.length === 0 ? "it reaches no host yet" : `it already reaches ${reaches.join(", ")}`;
  return quotedLines(printableLine(had, 1000), columns);
}

/** What programs of the host would execute, before everything else: it is why the question is asked apart. */
function executedLines({ hostExecuted = [] }: ConsentSubject, columns: number, colors: Colors, room: Room) {
  const lines = (some: typeof hostExecuted) =>
    some.flatMap(({ path, why }) => {
      const text = `${printableLine(why, 500)}: ${visibleName(path)}`;
      return quotedLines(text, columns, colors.yellow);
    });
  const more = hostExecuted.length - room.paths;
  const left = more <= 0 ? [] : quotedLines(`and ${more} more of this kind`, columns, colors.yellow);
  return {
    above: [...lines(hostExecuted.slice(0, room.paths)), ...left],
    rest: lines(hostExecuted.slice(room.paths)),
  };
}

export type Choice = Exclude<Answer, "interrupt"> | "all" | "wider";

export interface ChoiceText {
  readonly value: Choice;
  readonly label: string;
  readonly hint?: string;
}

/**
 * What a person may answer, and what each answer means. What is never remembered is only approved once. While lines are left to show, there
 * is no yes: a person approves what is on the screen.
 */
export function choiceTexts(question: AskedOfPerson, restLines: number): ChoiceText[] {
  const { runs, worker } = question;
  const these = runs > 1 ? `these ${runs} runs` : "this run";
  const lasting = lastingOf(question);
  const where = lasting === null ? "" : `${printableLine(worker, 40)} ${extentOf(lasting)}`;
  const no = { value: "no", label: "No" } as const;
  if (restLines > 0)
    return [no, { value: "all", label: "Show all", hint: `${restLines} more lines; then it can be allowed` }];
  return [
    no,
    ...(mayBeOnce(question)
      ? [
          {
            value: "once",
            label: "Yes, once",
            hint:
              question.to === undefined
                ? `for ${these}, and others that ask exactly this at the same time`
                : `until ${runs > 1 ? "these runs end" : "this run ends"}`,
          } as const,
        ]
      : []),
    ...(lasting === null
      ? []
      : ([
          {
            value: "tree",
            label: `Yes, for ${these} and all ${runs > 1 ? "they call" : "it calls"}`,
            hint: `${where}, anywhere in the same tree of runs`,
          },
          {
            value: "session",
            label: `Yes, do not ask again ${namedExtent(lasting)}`,
            hint: `${where}, until this command ends`,
          },
        ] as const)),
    ...(question.wider === undefined || question.wider.length === 0
      ? []
      : [{ value: "wider", label: "A directory around it…", hint: `${question.wider.length} can be chosen` } as const]),
  ];
}

const VERBS: Readonly<Record<ApprovalOperation, string>> = {
  read: "read",
  call: "call",
  write: "write",
  delete: "delete",
  exec: "run",
  push: "push",
  grant_read: "read",
  grant_write: "write",
  grant_network: "reach",
};

function verbsOf({ operations }: ConsentSubject): string {
  return [...new Set(operations.map((operation) => VERBS[operation]))].join(" and ");
}

const PLAIN_PATH = /^[\p{L}\p{N}/._@+-]+$/u;
const PLAIN_HOST = /^[a-z0-9._-]+:\d+$/;

/** A few paths of ordinary characters, which cannot be taken for words of the question. All else has lines of its own. */
function isPlain(question: ConsentSubject): boolean {
  const places = placesOf(question);
  return (
    question.command === undefined &&
    question.input === undefined &&
    places.length <= 3 &&
    places.every((place) =>
      question.to === undefined ? PLAIN_PATH.test(place) && visibleName(place) === place : PLAIN_HOST.test(place),
    )
  );
}

function shortDeed(question: ConsentSubject): string {
  if (question.callee !== undefined) return longDeed(question);
  const places = placesOf(question);
  return `${verbsOf(question)}${places.length === 0 ? "" : ` ${prepositionOf(question)}${places.join(", ")}`}`;
}

/** Says of what is listed above how much it is. */
function longDeed(question: ConsentSubject): string {
  const count = placesOf(question).length;
  if (question.callee !== undefined) {
    const parts = [...(question.input === undefined ? [] : ["the input"]), ...(count === 0 ? [] : ["the files"])];
    const given = parts.length === 0 ? "" : ` with ${parts.join(" and ")} above`;
    return `call the worker ${printableLine(question.callee, 80)}${given}`;
  }
  const command = question.command === undefined ? "" : " the command above";
  const paths = count === 1 ? "the path above" : `these ${count} paths`;
  const where =
    count === 0 ? "" : ` ${prepositionOf(question)}${isOnlyGrant(question) ? grantedAbove(question) : paths}`;
  return `${verbsOf(question)}${command}${where}`;
}

function grantedAbove({ to }: ConsentSubject): string {
  return to === undefined ? "above" : "the host above";
}

function prepositionOf(question: ConsentSubject): string {
  if (question.to !== undefined) return "";
  if (isOnlyGrant(question))
    return question.operations.includes("grant_write") ? "in the directory " : "the directory ";
  return question.operations.every((operation) => operation === "push") ? "" : "in ";
}

/** A grant is of its host, or of its directory, whatever path in it was touched first. */
function placesOf(question: ConsentSubject): readonly string[] {
  const { directory, paths, to } = question;
  if (to !== undefined) return [to, ...paths];
  if (directory === undefined) return paths;
  return isOnlyGrant(question) ? [directory] : [directory, ...paths];
}

function isOnlyGrant({ operations }: ConsentSubject): boolean {
  return operations.every(isGrant);
}

/**
 * Whole, because a person cannot approve a part that is not shown. A line break begins another command, and
 * must not look like a blank: behind a `#` all of that would seem a comment.
 */
function shownCommand(command: string): string {
  return printable(command).replaceAll("\n", "⏎ ");
}

function subjectLines(
  question: ConsentSubject,
  columns: number,
  room: Room,
): { readonly above: string[]; readonly rest: string[] } {
  const said = question.command ?? question.input;
  const command = said === undefined ? [] : quotedLines(shownCommand(said), columns);
  const lines = (paths: readonly string[]) => paths.flatMap((path) => quotedLines(visibleName(path), columns));
  const places = placesOf(question);
  const more = places.length - room.paths;
  const left = more <= 0 ? [] : quotedLines(`and ${more} more`, columns);
  return {
    above: [...command, ...lines(places.slice(0, room.paths)), ...left],
    rest: lines(places.slice(room.paths)),
  };
}

function diffLines(diff: string | undefined, columns: number, colors: Colors, room: Room) {
  if (diff === undefined || diff === "") return { above: [], rest: [] };
  const lines = diff
    .replace(/\n$/, "")
    .split("\n")
    .flatMap((line) => quotedLines(line, columns, paintOf(line, colors)));
  if (lines.length <= room.diffLines) return { above: lines, rest: [] };
  const rest = lines.slice(room.diffLines);
  const left = quotedLines(`and ${rest.length} more lines of the changes`, columns);
  return { above: [...lines.slice(0, room.diffLines), ...left], rest };
}

function paintOf(line: string, colors: Colors): ((text: string) => string) | undefined {
  if (line.startsWith("+")) return colors.green;
  if (line.startsWith("-")) return colors.red;
  return line.startsWith("@@") ? colors.cyan : undefined;
}

function extentOf(lasting: readonly Lasting[]): string {
  const places = placesIn(lasting);
  const [only] = places;
  if (lasting.some(({ kind }) => kind === "worker")) return "for each call of that worker";
  if (only?.kind === "host") return `to reach ${printableLine(only.at, MAX_NAMED_IN_HINT)}`;
  if (only === undefined) return "for exactly this command";
  if (places.length > 1) return `in ${places.length} places, with all below their directories`;
  const shown = printableLine(only.at, MAX_NAMED_IN_HINT);
  return only.kind === "below" ? `anywhere below ${shown}` : `for exactly ${shown}`;
}

function namedExtent(lasting: readonly Lasting[]): string {
  const places = placesIn(lasting);
  const [only] = places;
  if (lasting.some(({ kind }) => kind === "worker")) return "for calls of that worker";
  if (only?.kind === "host") return "for this host";
  if (only === undefined) return "for this command";
  if (places.length > 1) return "in these places";
  return only.kind === "below" ? "in this directory" : "for this path";
}

/** Each place once, whatever may be done there. */
function placesIn(lasting: readonly Lasting[]): Lasting[] {
  const places = lasting.filter(({ kind }) => kind !== "command" && kind !== "worker");
  return [...new Map(places.map((one) => [JSON.stringify([one.kind, one.at]), one])).values()];
}

/** So many hosts are named one by one. */
const MAX_DENIED = 20;

/** What a run and the runs that it called were refused on their networks, a line for each host and reason. */
export function deniedLines(result: RunResult): string[] {
  const denied = deniedIn(result);
  const lines = denied.slice(0, MAX_DENIED).map(({ worker, line }) => deniedLine(worker, line));
  return denied.length <= MAX_DENIED ? lines : [...lines, `corral: network: and ${denied.length - MAX_DENIED} more`];
}

/** A worker chose the host, so the line is escaped for the terminal. */
export function deniedLine(worker: string, { to, count, detail }: DeniedTraffic): string {
  const times = count === 1 ? "" : ` ×${count}`;
  const head = `corral: network: denied ${printableLine(to, 300)}${times} (${printableLine(worker, 80)})`;
  return `${head}: ${printableLine(detail, 500)}`;
}

/** What a run and those that it called were refused, by worker. */
export function deniedIn({
  worker,
  network,
  calls,
}: RunResult): { readonly worker: string; readonly line: DeniedTraffic }[] {
  return [...(network?.denied ?? []).map((line) => ({ worker, line })), ...calls.flatMap(deniedIn)];
}

/** How a text is coloured; whether it is at all, its stream decides. */
export type Colors = ReturnType<typeof pc.createColors>;

/**
 * Text that a worker chose, line by line, with a mark before each. Lines that are too long for the terminal are broken
 * here, for else the terminal would break them, and what follows would look like a line of Corral's own.
 */
export function quotedLines(text: string, columns: number, paint: (line: string) => string = (line) => line): string[] {
  const room = Math.max(20, columns - FURTHER.length - 1);
  return text.split("\n").flatMap((line) => {
    const whole = printable(line.replaceAll("\t", TAB));
    const painted = (widthOf(whole) <= room ? [whole] : broken(unidirectional(whole), room)).map(paint);
    return painted.map((part, index) => `${index === 0 ? FIRST : FURTHER}${part}`);
  });
}

/** How many columns a text takes at most. What is not ASCII may be two wide. */
export function widthOf(text: string): number {
  let width = 0;
  for (const character of text) width += columnsOf(character);
  return width;
}

const FIRST = "  ┊ ";
const FURTHER = "  ┊   ↳ ";
/** Shown as what it is: in a diff a tab and blanks are not the same. */
const TAB = "→   ";

function broken(line: string, room: number): string[] {
  const parts: string[] = [];
  let part = "";
  let width = 0;
  // A mark stays with its letter: at the beginning of a line it would be drawn over Corral's own.
  for (const [character] of line.matchAll(/.\p{M}*/gsu)) {
    const more = widthOf(character);
    if (width + more > room) {
      parts.push(part);
      part = "";
      width = 0;
    }
    part += character;
    width += more;
  }
  return [...parts, part];
}

function columnsOf(character: string): number {
  return character.charCodeAt(0) < 0x80 ? 1 : 2;
}
