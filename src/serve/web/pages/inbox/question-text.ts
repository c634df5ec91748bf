import type { AnswerOf } from "../../../../operations/contract/table.ts";
import { visibleName } from "../../../../text/visible.ts";

type Question = AnswerOf<"approvals.show">["question"];

const VERBS: Readonly<Record<string, string>> = {
  read: "read",
  call: "call",
  write: "write",
  delete: "delete",
  exec: "run",
  push: "push",
  grant_read: "be granted to read",
  grant_write: "be granted to write",
  grant_network: "be granted to reach",
};

/** What is asked for, without who asks: `write /out/a.txt`. Its words but the verbs may come from a worker. */
export function deedOf({ operations, paths, directory, to, callee, command }: Question): string {
  const verbs = [...new Set(operations.map((operation) => VERBS[operation] ?? operation))].join(" and ");
  const place =
    (directory === undefined ? undefined : visibleName(directory, "kept")) ??
    to ??
    callee ??
    (command === undefined ? undefined : firstLine(command));
  if (place !== undefined) return `${verbs} ${place}`;
  return paths.length === 1 ? `${verbs} ${visibleName(paths[0] ?? "", "kept")}` : `${verbs} ${paths.length} paths`;
}

function firstLine(command: string): string {
  const [line = "", ...more] = command.split("\n");
  return more.length > 0 ? `${line} …` : line;
}

export type OfferedAnswer = "once" | "tree" | "no";

/** What may be answered. The service says it; one that does not say it is asked, and refuses what has no effect. */
export function answersOf({
  answers,
  question,
}: {
  readonly answers?: readonly OfferedAnswer[];
  readonly question: Question;
}): readonly OfferedAnswer[] {
  return answers ?? (question.lastingOnly ? ["tree", "no"] : ["once", "tree", "no"]);
}

/** Which question is shown after one was left: the next in the list, or the one before at its end. */
export function neighbour(ids: readonly string[], id: string | null, by: 1 | -1): string | null {
  const at = id === null ? -1 : ids.indexOf(id);
  if (at < 0) return ids[by > 0 ? 0 : ids.length - 1] ?? null;
  return ids[Math.min(ids.length - 1, Math.max(0, at + by))] ?? null;
}

/** The one that takes the place of a question that was decided. */
export function afterDecision(ids: readonly string[], id: string): string | null {
  const at = ids.indexOf(id);
  const left = ids.filter((one) => one !== id);
  return left[Math.min(Math.max(0, at), left.length - 1)] ?? null;
}
