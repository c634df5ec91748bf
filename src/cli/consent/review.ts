import { isCancel, select } from "@clack/prompts";
import type { ForeseenChangeset, RuledPart } from "../../operations/foreseen-changes.ts";
import { quotedLines } from "../../operations/wording/question-text.ts";
import { counted } from "../../text/amounts.ts";
import { present } from "../../text/present.ts";
import { printableLine, visibleName } from "../../text/visible.ts";
import { colorsFor, paintOf, say, type Terminal } from "../terminal/terminal.ts";
import { amountText } from "./person.ts";

const DEFAULT_COLUMNS = 80;
/** Of one file; the whole is shown on request. */
const MAX_LINES = 60;
/** Of what cannot be applied. */
const MAX_UNFIT = 50;

/** What a person wants next: the next changeset, this one and all further ones without questions, or nothing more. */
export type ReviewEnd = "next" | "rest" | "stop";

export interface Reviewing {
  /** `Item 3 of 7: report-a`. */
  readonly title: string;
  /** How many changesets follow. */
  readonly further: number;
  readonly signal: AbortSignal;
  /** Applies these changes now: what was agreed to stays applied, whatever comes next. `hostExecuted`: paths that were agreed to apart. */
  apply(indexes: readonly number[], hostExecuted?: readonly string[]): Promise<void>;
  /** Removes what is left of the changeset. */
  discard(): Promise<void>;
}

type Choice = "skip" | "one" | "all" | "rest" | "whole" | "discard" | "stop";

interface Keyed<Value> {
  readonly value: Value;
  readonly key: string;
  readonly label: string;
}

/** One of the options, the first if nothing else is said: by arrows and Enter, or by its key alone. Null: the person stops. */
async function chosen<Value extends string>(
  message: string,
  options: readonly Keyed<Value>[],
  { input, output, signal }: { input: Terminal["stdin"]; output: Terminal["stderr"]; signal: AbortSignal },
): Promise<Value | null> {
  const keyed = new AbortController();
  let pressed: Keyed<Value> | undefined;
  const onKey = (text: string | undefined): void => {
    pressed ??= options.find(({ key }) => key === text);
    if (pressed !== undefined) keyed.abort();
  };
  input.on("keypress", onKey);
  try {
    const answer = await select<string>({
      message,
      options: options.map(({ value, key, label }) => ({ value, label: `${key}  ${label}` })),
      ...present({ initialValue: options[0]?.value }),
      input,
      output,
      signal: AbortSignal.any([signal, keyed.signal]),
    });
    if (signal.aborted) return null;
    if (pressed !== undefined) output.write(`  ${pressed.label}\n`);
    return pressed?.value ?? (isCancel(answer) ? null : (answer as Value));
  } finally {
    input.off("keypress", onKey);
  }
}

/**
 * Shows a changeset file by file and asks about each. What cannot be applied is shown first, with the reason; then come the files that
 * programs of the host would execute, each with a question of its own that nothing else answers.
 */
export async function reviewed(seen: ForeseenChangeset, terminal: Terminal, asked: Reviewing): Promise<ReviewEnd> {
  say(terminal, `${asked.title}: ${amountText(seen.total)}`);
  tellUnfit(seen, terminal);
  const byRules = seen.parts.filter(({ ruled }) => ruled?.outcome === "approved");
  if (byRules.length > 0) await asked.apply(indexesOf(byRules));
  const asksFor = seen.parts.filter(({ ruled }) => ruled === null);
  const apart = asksFor.filter(({ hostExecuted }) => hostExecuted !== null);
  for (const [at, part] of apart.entries()) {
    const choice = await choiceOn(part, apart.slice(at), apart.length, terminal, asked);
    if (choice === "stop") return "stop";
    if (choice === "discard") return await discarded(asked);
    if (choice === "one") await asked.apply(part.indexes, [part.path]);
  }
  const open = asksFor.filter(({ hostExecuted }) => hostExecuted === null);
  for (const [at, part] of open.entries()) {
    const choice = await choiceOn(part, open.slice(at), open.length, terminal, asked);
    if (choice === "stop") return "stop";
    if (choice === "discard") return await discarded(asked);
    if (choice === "one") await asked.apply(part.indexes);
    if (choice === "all" || choice === "rest") {
      await asked.apply(indexesOf(open.slice(at)));
      return choice === "all" ? "next" : "rest";
    }
  }
  return "next";
}

async function discarded({ discard }: Reviewing): Promise<ReviewEnd> {
  await discard();
  return "next";
}

function tellUnfit({ unfit, parts, notShown, commits, lookAlike }: ForeseenChangeset, terminal: Terminal): void {
  for (const text of commits) say(terminal, `  ${text}`);
  for (const text of lookAlike) say(terminal, `  careful: ${text}`);
  for (const { path, outcome, reason } of unfit.slice(0, MAX_UNFIT))
    say(terminal, `  ${outcome}: ${visibleName(path)}: ${printableLine(reason, 500)}`);
  if (unfit.length > MAX_UNFIT) say(terminal, `  and ${unfit.length - MAX_UNFIT} more that cannot be applied`);
  for (const { path, ruled } of parts.filter((part) => part.ruled?.outcome === "denied").slice(0, MAX_UNFIT))
    say(terminal, `  denied: ${visibleName(path)}: ${printableLine(ruled?.reason ?? "", 500)}`);
  if (notShown > 0) say(terminal, `  ${counted(notShown, "change")} beyond the limit of a diff wait`);
}

/** `left`: this file, and those after it. A file is applied when all of it was on the screen, or when a person agrees to its name alone. */
async function choiceOn(
  part: RuledPart,
  left: readonly RuledPart[],
  of: number,
  terminal: Terminal,
  { signal, further }: Reviewing,
): Promise<Exclude<Choice, "whole">> {
  const { stdin, stderr, env } = terminal;
  const columns = stderr.columns || DEFAULT_COLUMNS;
  const colors = colorsFor(stderr, env);
  const executed = part.hostExecuted === null ? [] : quotedLines(part.hostExecuted, columns, colors.yellow);
  const lines = part.lines.flatMap((line) => quotedLines(line, columns, paintOf(line, colors)));
  const streams = { input: stdin, output: stderr, signal };
  // The name comes first, by itself: no line of a file can be taken for it.
  stderr.write(
    `${[...executed, ...quotedLines(visibleName(part.path), columns), ...lines.slice(0, MAX_LINES)].join("\n")}\n`,
  );
  const what = part.type === "file" ? part.kind : `${part.kind} ${part.type}`;
  const message = `File ${of - left.length + 1} of ${of}: ${what}, +${part.added} -${part.removed}. Apply it?`;
  for (let rest = lines.slice(MAX_LINES); ; ) {
    const options: Keyed<Choice>[] = [
      { value: "skip", key: "s", label: "Skip it: it waits" },
      rest.length > 0
        ? { value: "whole", key: "w", label: `Show the other ${rest.length} lines; then it can be applied` }
        : { value: "one", key: "y", label: "Apply this file" },
      ...(executed.length === 0 && left.length > 1
        ? [{ value: "all", key: "a", label: `Apply all ${left.length} files left here` } as const]
        : []),
      ...(executed.length === 0 && further > 0
        ? [{ value: "rest", key: "r", label: `Apply all the rest: ${counted(further, "more changeset")}` } as const]
        : []),
      { value: "discard", key: "d", label: "Discard what is left of this changeset" },
      { value: "stop", key: "q", label: "Stop: the rest waits" },
    ];
    const answer = await chosen<Choice>(message, options, streams);
    if (answer === null) return "stop";
    if (answer === "discard") {
      const sure: Keyed<"no" | "yes">[] = [
        { value: "no", key: "n", label: "No" },
        { value: "yes", key: "y", label: "Yes, remove it" },
      ];
      const agreed = await chosen("Remove what is left of this changeset? Nothing brings it back.", sure, streams);
      if (agreed === null) return "stop";
      if (agreed === "yes") return "discard";
    } else if (answer === "whole") {
      stderr.write(`${rest.join("\n")}\n`);
      rest = [];
    } else if (answer !== "all" && answer !== "rest") return answer;
    else {
      const unseen = rest.length > 0 ? left : left.slice(1);
      const names = unseen.flatMap(({ path, added, removed }) =>
        quotedLines(`${visibleName(path)} +${added} -${removed}`, columns),
      );
      if (names.length > 0) stderr.write(`${names.join("\n")}\n`);
      const which = [
        ...(unseen.length > 0 ? [`the ${counted(unseen.length, "file")} above`] : []),
        ...(answer === "rest" ? [counted(further, "more changeset")] : []),
      ];
      const agreed = await chosen<"no" | "yes">(
        `Apply ${which.join(" and ")} without having seen all of it?`,
        [
          { value: "no", key: "n", label: "No, go on one by one" },
          { value: "yes", key: "y", label: "Yes" },
        ],
        streams,
      );
      if (agreed === null) return "stop";
      if (agreed === "yes") return answer;
    }
  }
}

function indexesOf(parts: readonly RuledPart[]): number[] {
  return parts.flatMap(({ indexes }) => indexes);
}
