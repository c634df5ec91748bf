import { isCancel, select } from "@clack/prompts";
import type { ForeseenChangeset, RuledPart } from "../../operations/foreseen-changes.ts";
import { quotedLines } from "../../operations/wording/quoted-lines.ts";
import { counted } from "../../text/amounts.ts";
import { printableLine, visibleName } from "../../text/visible.ts";
import { colorsFor, paintOf, say, type Terminal } from "../terminal/terminal.ts";
import { amountText } from "./prompt.ts";

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
}

type Choice = "skip" | "one" | "all" | "rest" | "whole" | "stop";

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
    if (choice === "one") await asked.apply(part.indexes, [part.path]);
  }
  const open = asksFor.filter(({ hostExecuted }) => hostExecuted === null);
  for (const [at, part] of open.entries()) {
    const choice = await choiceOn(part, open.slice(at), open.length, terminal, asked);
    if (choice === "stop") return "stop";
    if (choice === "one") await asked.apply(part.indexes);
    if (choice === "all" || choice === "rest") {
      await asked.apply(indexesOf(open.slice(at)));
      return choice === "all" ? "next" : "rest";
    }
  }
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
    const options: { value: Choice; label: string }[] = [
      { value: "skip", label: "Skip it: it waits" },
      rest.length > 0
        ? { value: "whole", label: `Show the other ${rest.length} lines; then it can be applied` }
        : { value: "one", label: "Apply this file" },
      ...(executed.length === 0 && left.length > 1
        ? [{ value: "all", label: `Apply all ${left.length} files left here` } as const]
        : []),
      ...(executed.length === 0 && further > 0
        ? [{ value: "rest", label: `Apply all the rest: ${counted(further, "more changeset")}` } as const]
        : []),
      { value: "stop", label: "Stop: the rest waits" },
    ];
    const answer = await select<Choice>({ message, options, initialValue: "skip", ...streams });
    if (isCancel(answer) || signal.aborted) return "stop";
    if (answer === "whole") {
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
      const agreed = await select<"no" | "yes">({
        message: `Apply ${which.join(" and ")} without having seen all of it?`,
        options: [
          { value: "no", label: "No, go on one by one" },
          { value: "yes", label: "Yes" },
        ],
        initialValue: "no",
        ...streams,
      });
      if (isCancel(agreed) || signal.aborted) return "stop";
      if (agreed === "yes") return answer;
    }
  }
}

function indexesOf(parts: readonly RuledPart[]): number[] {
  return parts.flatMap(({ indexes }) => indexes);
}
