import { useMemo, useState } from "preact/hooks";
import type { AnswerOf } from "../../../../operations/contract/table.ts";
import { counted, durationText, words } from "../../../../text/amounts.ts";
import { visibleName } from "../../../../text/visible.ts";
import { hrefTo, useShortcuts } from "../../app/resource.ts";
import { Button } from "../../components/dialog.tsx";
import { ConfirmUnseen, DiffView, LeftNote, ROOM } from "../../components/diff-view.tsx";
import { Ago, CodeBlock, Name, StatusBadge, Visible } from "../../components/visible.tsx";
import { cutDiff, parseDiff } from "../../text/diff.ts";

type Approval = AnswerOf<"approvals.show">;

/** Paths that are drawn at first. */
const PATHS = 50;
/** Runs that are named. */
const RUNS = 20;

const ANSWERS: readonly {
  readonly answer: OfferedAnswer;
  readonly text: string;
  readonly key: string;
  readonly kind: "primary" | "plain" | "danger";
}[] = [
  { answer: "once", text: "Allow once", key: "a", kind: "primary" },
  { answer: "tree", text: "Allow for this run and its calls", key: "t", kind: "plain" },
  { answer: "no", text: "Deny", key: "x", kind: "danger" },
];

/** One question: who asks, for what, why, and all that a decision is about. */
export function QuestionView({
  approval,
  now,
  mayDecide,
  decide,
  directory,
  choose,
}: {
  readonly approval: Approval;
  readonly now: number;
  readonly mayDecide: boolean;
  readonly decide: (answer: OfferedAnswer) => Promise<void>;
  readonly directory: string | null;
  readonly choose: (directory: string | null) => void;
}) {
  const { question, project, state } = approval;
  const {
    worker,
    through = [],
    why,
    waiting = [],
    command,
    input,
    to,
    reaches = [],
    wider = [],
    paths,
    diff,
    hostExecuted = [],
    machine,
  } = question;
  const [isAll, setAll] = useState(false);
  const [unseen, setUnseen] = useState<OfferedAnswer | null>(null);
  const files = useMemo(() => (diff === undefined ? [] : parseDiff(diff.split("\n"))), [diff]);
  const cut = cutDiff(files, isAll ? Number.POSITIVE_INFINITY : ROOM);
  const more = isAll ? [] : paths.slice(PATHS);
  const left = [...more.map((name) => ({ name: visibleName(name, "kept"), lines: 0 })), ...cut.left];
  const showAll = (): void => setAll(true);
  const mayNow = mayDecide && state === "waiting";
  const may = answersOf(approval);
  // A yes is about what is on the page, or about what its own dialog names.
  const answer = (one: OfferedAnswer): Promise<void> | void =>
    one === "no" || left.length === 0 ? decide(one) : setUnseen(one);
  useShortcuts(
    "Inbox",
    mayNow
      ? ANSWERS.filter((one) => may.includes(one.answer)).map(({ answer: one, text, key }) => ({
          keys: key,
          does: text,
          act: () => void answer(one),
        }))
      : [],
  );
  return (
    <article class="question" aria-labelledby="question-title">
      <h2 id="question-title">
        <Visible text={worker} max={80} /> asks to <Visible text={deedOf(question)} max={300} />
      </h2>
      <p class="quiet">
        {through.length > 1 ? (
          <>
            called through <Visible text={through.slice(0, -1).join(" › ")} max={300} /> ·{" "}
          </>
        ) : null}
        {machine === undefined ? null : (
          <>
            on the machine <Visible text={machine} max={80} />, which has written these texts ·{" "}
          </>
        )}
        project <Visible text={project} max={80} /> · run{" "}
        <a href={hrefTo(["runs", question.root])}>
          <code>
            <Visible text={question.run} max={80} />
          </code>
        </a>{" "}
        · asked <Ago at={approval.askedAt} now={now} />
        {state !== "waiting" || approval.timeoutMs === null
          ? null
          : `; denied without an answer within ${durationText(approval.timeoutMs)}`}
      </p>
      {waiting.length > 1 ? (
        <p class="waiting-runs">
          {counted(waiting.length, "run")}{" "}
          {state === "waiting" ? "wait for this, and an answer is" : "asked this, and the end was"} for all of them:{" "}
          {waiting.slice(0, RUNS).map(({ run, root }, index) => (
            <a key={index} href={hrefTo(["runs", root])}>
              <code>
                <Visible text={run} max={80} />
              </code>{" "}
            </a>
          ))}
          {waiting.length > RUNS ? `and ${waiting.length - RUNS} more` : ""}
        </p>
      ) : null}
      {hostExecuted.length === 0 ? null : (
        <ul class="executed" role="alert">
          {hostExecuted.map(({ path, why: executed }) => (
            <li key={path}>
              <Visible text={executed} max={500} />:{" "}
              <code>
                <Visible text={path} max={4096} />
              </code>
            </li>
          ))}
        </ul>
      )}
      {state === "decided" ? <Decided approval={approval} now={now} /> : null}
      {why === undefined ? null : (
        <blockquote class="why">
          <p>
            <Visible text={why} />
          </p>
          <footer class="quiet">why, as it was asked; these may be the worker's words</footer>
        </blockquote>
      )}
      {state === "waiting" ? (
        <div class="actions decide">
          {mayDecide ? (
            ANSWERS.filter((one) => may.includes(one.answer)).map(({ answer: one, text, key, kind }) => (
              <Button key={one} kind={kind} shortcut={key} act={() => answer(one)}>
                {text}
              </Button>
            ))
          ) : (
            <p class="quiet">This token may not decide. It needs the role decide.</p>
          )}
        </div>
      ) : null}
      {mayNow ? <LeftNote left={left} showAll={showAll} /> : null}
      {approval.lookAlike.length === 0 ? null : (
        <ul class="look-alike" aria-label="Names that look alike">
          {approval.lookAlike.map((text, index) => (
            <li key={index}>
              <Visible text={text} />
            </li>
          ))}
        </ul>
      )}
      {mayNow && wider.length > 0 ? (
        <label class="wider">
          Grant
          <select
            value={directory ?? ""}
            onChange={(event) => choose(event.currentTarget.value === "" ? null : event.currentTarget.value)}
          >
            <option value="">what it asks for</option>
            {wider.map((one) => (
              <option key={one} value={one}>
                {visibleName(one)}, around it
              </option>
            ))}
          </select>
        </label>
      ) : null}
      {command === undefined ? null : <CodeBlock text={command} label="Copy" />}
      {input === undefined ? null : <CodeBlock text={input} label="Copy" />}
      {to === undefined ? null : (
        <p class="quiet">
          {reaches.length === 0 ? (
            "It reaches no host yet."
          ) : (
            <>
              It already reaches <Visible text={reaches.join(", ")} />.
            </>
          )}
        </p>
      )}
      {paths.length > 0 ? (
        <ul class="paths">
          {paths.slice(0, isAll ? paths.length : PATHS).map((path, index) => (
            <li key={index}>
              <code>
                <Name text={path} />
              </code>
            </li>
          ))}
          {more.length > 0 ? <li class="quiet">and {counted(more.length, "more path")}, not shown</li> : null}
        </ul>
      ) : null}
      {diff === undefined ? null : <DiffView {...cut} label="What would change" showAll={showAll} />}
      {unseen === null || !mayNow ? null : (
        <ConfirmUnseen
          left={left}
          deed={ANSWERS.find((one) => one.answer === unseen)?.text ?? "Allow"}
          act={() => {
            setUnseen(null);
            void decide(unseen);
          }}
          close={() => setUnseen(null)}
        />
      )}
      <p class="quiet digest">
        A decision is on exactly this: digest <code>{approval.digest.slice(0, 12)}</code>.
      </p>
    </article>
  );
}

function Decided({
  approval: { outcome, scope, by, via, decidedAt },
  now,
}: {
  readonly approval: Approval;
  readonly now: number;
}) {
  return (
    <p class="decided" role="status">
      <StatusBadge status={outcome ?? "decided"} />
      {scope === null
        ? null
        : scope === "once"
          ? " once"
          : scope === "tree"
            ? " for the run and its calls"
            : ` for the ${words(scope)}`}
      {by === null ? null : (
        <>
          {" "}
          by <Visible text={by} max={80} />
        </>
      )}
      {via == null ? null : ` (${words(via)})`} {decidedAt === null ? null : <Ago at={decidedAt} now={now} />}
    </p>
  );
}

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
