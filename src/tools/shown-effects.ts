import { isText, textDiff } from "../files/diff/text-diff.ts";
import type { Effect, Expected, ForeseenOperation, Intended, Version } from "../files/model/files.ts";
import { consentQuestions } from "../files/questions.ts";
import { sha256 } from "../platform/sha256.ts";
import type { VirtualPath } from "../sandbox/virtual-path.ts";
import { counted } from "../text/amounts.ts";
import { MAX_LINE, visibleLine, visibleName } from "../text/visible.ts";
import type { CoveredEffect, CoveredWrite, Hands } from "./hands.ts";

/** Of both versions of all files: comparing takes time. */
const MAX_KEPT_BYTES = 8 * 1024 ** 2;

/**
 * What a person sees of many files that one use of a tool writes: a whole diff of each, as long as there is room. What is not
 * shown completely is not agreed to, and is asked about again when it is applied.
 */
export class ShownWrites {
  readonly #lines: string[] = [];
  readonly #covered = new Map<VirtualPath, CoveredWrite>();
  #charsLeft = MAX_SHOWN_CHARS;
  #bytesLeft = MAX_KEPT_BYTES;
  #notNamed = 0;

  /** In the order in which they are shown. */
  add(effect: WriteEffect): void {
    if (this.#charsLeft <= 0) {
      this.#notNamed += 1;
      return;
    }
    const bytes = effect.after.bytes + (effect.before?.bytes ?? 0);
    const isCompared = bytes <= this.#bytesLeft;
    if (isCompared) this.#bytesLeft -= bytes;
    const { lines, covered } = shownWrite(effect, isCompared ? this.#charsLeft : 0);
    // One by one: a call takes only so many arguments.
    for (const line of lines) {
      this.#charsLeft -= line.length + 1;
      this.#lines.push(line);
    }
    if (covered !== null) this.#covered.set(effect.path, covered);
  }

  /** Each line is safe to print. */
  get diff(): string {
    const more = this.#notNamed === 0 ? [] : [`and ${this.#notNamed} more files, which are not shown`];
    return [...this.#lines, ...more].join("\n");
  }

  /** What the diff shows completely. */
  coveredAt(path: VirtualPath): CoveredWrite | null {
    return this.#covered.get(path) ?? null;
  }
}

/**
 * Asks for each operation whose consent is `ask`, one after another, and for what programs of the host would execute whatever
 * the consent is. What the operation would be refused for is refused first. Returns what was shown, so that nothing else is done; undefined
 * if no question was asked.
 */
export async function agreeTo(intended: Intended, hands: Hands, signal: AbortSignal): Promise<Expected | undefined> {
  const asking = await consentQuestions(intended, hands.files, signal);
  if (asking === null) return undefined;
  const { foreseen, questions } = asking;
  const { diff, covered } = shownEffects(intended, foreseen);
  for (const { ofMount: _, ...need } of questions) {
    const ofThis = covered.filter((one) => one.operation === need.operation);
    await hands.agree({ ...need, diff, covered: ofThis }, signal);
  }
  return foreseen.expected;
}

/** For a longer file no diff is computed; all of its new content is shown instead. */
const MAX_COMPARED_BYTES = 256 * 1024;
/** The most of one question. What is left out is counted, and is asked about again when it is applied. */
export const MAX_SHOWN_CHARS = 1024 ** 2;
/** Of a whole directory, each entry has a line. */
const MAX_NAMED = 200;

export type WriteEffect = Extract<Effect, { kind: "write" }>;

/**
 * What a person sees of an operation, each line safe to print, and what is shown completely: only that is agreed to. The
 * rest is asked about when it is applied.
 */
export function shownEffects(
  intended: Intended,
  { effects, places }: Pick<ForeseenOperation, "effects" | "places">,
): { readonly diff: string; readonly covered: readonly CoveredEffect[] } {
  const lines: string[] = headingOf(intended, places);
  const covered: CoveredEffect[] = [];
  const isOne = effects.filter(({ kind }) => kind !== "delete").length <= 1;
  for (const effect of effects.slice(0, MAX_NAMED)) {
    const shown = effect.kind === "write" && isOne ? shownWrite(effect) : namedOnly(effect);
    // One by one: a call takes only so many arguments.
    for (const line of shown.lines) lines.push(line);
    if (shown.covered !== null) covered.push(shown.covered);
  }
  const more = effects.length - MAX_NAMED;
  if (more > 0) lines.push(`and ${more} more entries`);
  return { diff: lines.join("\n"), covered };
}

function headingOf(intended: Intended, places: readonly number[]): string[] {
  switch (intended.operation) {
    case "edit":
      return intended.edits.flatMap(({ all }, index) => {
        const count = places[index] ?? 0;
        if (all !== true) return [];
        const which = intended.edits.length === 1 ? "the edit" : `edit ${index + 1}`;
        return [`${which} replaces every place of its text: ${counted(count, "place")}`];
      });
    case "copy":
    case "move": {
      const verb = intended.operation === "copy" ? "copy" : "rename";
      return [`${verb} from ${visibleName(intended.path)}`, `${verb} to ${visibleName(intended.to)}`];
    }
    default:
      return [];
  }
}

interface ShownEffect<Covered = CoveredEffect> {
  readonly lines: readonly string[];
  /** Null if not everything new is in the lines. */
  readonly covered: Covered | null;
}

function namedOnly(effect: Effect): ShownEffect {
  const name = visibleName(effect.path);
  switch (effect.kind) {
    case "folder":
      return { lines: [`create directory ${name}`], covered: null };
    case "delete": {
      const what = effect.type === "directory" ? "directory " : effect.type === "link" ? "link " : "";
      return { lines: [`delete ${what}${name}`], covered: { operation: "delete", path: effect.path } };
    }
    case "write":
      return { lines: [`${headOf(effect)} (${sizesOf(effect)})`], covered: null };
  }
}

/** The diff of one file. `maxChars`: the room that is left for it; if it needs more, only its name and size are shown. */
export function shownWrite(effect: WriteEffect, maxChars = MAX_SHOWN_CHARS): ShownEffect<CoveredWrite> {
  const { path, before, after } = effect;
  if (maxChars <= 0) return { lines: [`${headOf(effect)} (${sizesOf(effect)}; not shown)`], covered: null };
  const content = after.content === null ? null : Buffer.from(after.content);
  if (content === null) return noted(effect, "too large to show");
  if (!isText(content)) return noted(effect, "binary");
  // A diff or all of it would be at least as long.
  if (content.length > MAX_SHOWN_CHARS * 4 || content.toString().length > MAX_SHOWN_CHARS)
    return noted(effect, "too large to show");
  const old = before === null ? Buffer.alloc(0) : comparable(before);
  const hunks = old === null || content.length > MAX_COMPARED_BYTES ? null : textDiff(old, content);
  const body = hunks ?? allOf(content);
  const chars = body.reduce((sum, line) => sum + line.length + 1, 0);
  if (chars > maxChars) return noted(effect, maxChars < MAX_SHOWN_CHARS ? "not shown" : "too large to show");
  const mode = modeShown(effect);
  const note =
    hunks === null && before !== null ? [`${headOf(effect)} (${sizesOf(effect)}; all of its new content:)`] : [];
  const head = note.length > 0 ? note : [headOf(effect)];
  const name = visibleName(path);
  const title = body.length === 0 ? [] : [`--- ${before === null ? "/dev/null" : name}`, `+++ ${name}`];
  // A longer line is cut: what is not seen is not agreed to.
  const isWhole = content
    .toString()
    .split("\n")
    .every((line) => line.length <= MAX_LINE);
  const digests = { before: hunks === null || before === null ? null : digestOf(before), after: sha256(content), mode };
  return { lines: [...head, ...title, ...body], covered: isWhole ? { operation: "write", path, ...digests } : null };
}

/** Its content does not appear, so it is not agreed to. */
function noted(effect: WriteEffect, why: string): ShownEffect<never> {
  const { content } = effect.after;
  const digest = content === null ? "" : `; SHA-256 ${sha256(content)}`;
  return { lines: [`${headOf(effect)} (${sizesOf(effect)}; ${why}${digest})`], covered: null };
}

function headOf(effect: WriteEffect): string {
  const { path, before } = effect;
  const mode = modeShown(effect);
  const was = before === null || before.mode === null ? "" : `${octal(before.mode)} -> `;
  return `${before === null ? "create" : "replace"} ${visibleName(path)}${mode === null ? "" : `, mode ${was}${octal(mode)}`}`;
}

/** The permission bits, if they change or a new file is executable. */
function modeShown({ before, after }: WriteEffect): number | null {
  if (after.mode === null) return null;
  if (before === null) return (after.mode & 0o111) === 0 ? null : after.mode;
  return after.mode === before.mode ? null : after.mode;
}

function octal(mode: number): string {
  return (mode & 0o777).toString(8);
}

function sizesOf({ before, after }: WriteEffect): string {
  return `${before === null ? "" : `${before.bytes} bytes -> `}${after.bytes} bytes`;
}

/** Null if no diff can start from it. */
function comparable({ bytes, content }: Version): Buffer | null {
  const text = content === null || bytes > MAX_COMPARED_BYTES ? null : Buffer.from(content);
  return text !== null && isText(text) ? text : null;
}

function digestOf({ content }: Version): string | null {
  return content === null ? null : sha256(content);
}

function allOf(content: Buffer): string[] {
  return content
    .toString()
    .split("\n")
    .map((line) => visibleLine(`+${line}`));
}
