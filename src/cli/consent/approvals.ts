import { resolve } from "node:path";
import { setTimeout as sleep } from "node:timers/promises";
import { BOARD_ANSWERS, type BoardAnswer } from "../../approval/queued-approver.ts";
import type { Approval } from "../../operations/approvals.ts";
import { LATEST } from "../../operations/request-error.ts";
import { EVERYTHING, questionText, shortQuestion } from "../../operations/wording/question-text.ts";
import { present } from "../../text/present.ts";
import { printableLine } from "../../text/visible.ts";
import { type ConsentOffer, consentOffered } from "../host/decisions.ts";
import { UsageError } from "../terminal/arguments.ts";
import {
  colorsFor,
  EXIT,
  printCutList,
  printJson,
  printList,
  say,
  type Terminal,
  withoutControls,
} from "../terminal/terminal.ts";
import { userName } from "./person.ts";

const DEFAULT_COLUMNS = 80;
/** How often Corral checks whether another user has answered, while a user reads the question. */
const LOOK_MS = 500;
/** Of those that wait for one answer, how many are named. */
const MAX_RUNS = 20;

interface JsonOption {
  readonly json?: boolean;
}

/** `corral approvals ls`. Needs no Engine. */
export async function listApprovalsVerb(
  options: JsonOption & { readonly decided?: boolean },
  terminal: Terminal,
): Promise<number> {
  const state = options.decided ? "decided" : "waiting";
  const { approvals, next } = await (await consentOffered(terminal)).page({ state });
  const asked = ({ id, question, project }: Approval) => [id, whoAsks(question), shortQuestion(question), project];
  const order = options.decided ? "newest" : "oldest";
  printCutList(
    terminal,
    options.json,
    { name: "approvals", list: approvals, more: next !== null, order },
    {
      head: ["ID", "WORKER", "ASKS TO", "PROJECT", ...(options.decided ? ["OUTCOME", "BY", "DECIDED"] : ["SINCE"])],
      rowOf(one) {
        const end = options.decided ? [one.outcome ?? "", one.by ?? "-", one.decidedAt ?? ""] : [one.askedAt];
        return [...asked(one), ...end].map((cell) => printableLine(cell));
      },
      none: options.decided ? "No question was decided." : "No question waits.",
    },
  );
  return 0;
}

/** `corral approvals show`. */
export async function showApprovalVerb(id: string, options: JsonOption, terminal: Terminal): Promise<number> {
  const approval = await (await consentOffered(terminal)).show(id);
  if (options.json) printJson(terminal, approval);
  else terminal.stdout.write(`${withoutControls(approvalText(approval, terminal))}\n`);
  return 0;
}

/** `corral approvals decide`. The decision is about what was read here. */
export async function decideVerb(
  asked: string,
  rawAnswer: string | undefined,
  options: JsonOption & { readonly digest?: string; readonly directory?: string },
  terminal: Terminal,
): Promise<number> {
  const consent = await consentOffered(terminal);
  const given = rawAnswer === undefined ? null : answerFrom(rawAnswer);
  // A question that comes just now would get this answer, unread.
  if (asked === LATEST && given !== null && options.digest === undefined)
    throw new UsageError(
      "a newer question may be `latest` now: give the id, or also --digest (see corral approvals show latest)",
    );
  const approval = await consent.show(asked);
  const answer = given ?? (approval.state === "waiting" ? await answered(approval, consent, terminal) : "no");
  if (answer === null) return EXIT.cancelled;
  const { digest = approval.digest, directory } = options;
  const how = { answer, digest, by: userName(), via: "command", ...present({ directory }) } as const;
  const decided = await consent.decide(approval.id, how);
  if (options.json) printJson(terminal, decided);
  else say(terminal, `Question ${decided.id} is decided: ${endText(decided)}.`);
  return 0;
}

function answerFrom(raw: string): BoardAnswer {
  const answer = BOARD_ANSWERS.find((one) => one === raw);
  if (answer === undefined)
    throw new UsageError(`the answer is ${BOARD_ANSWERS.join(", ")}, not ${JSON.stringify(raw)}`);
  return answer;
}

/** Null: the person left without an answer. A question that another one decides meanwhile is no question any more. */
async function answered(approval: Approval, consent: ConsentOffer, terminal: Terminal): Promise<BoardAnswer | null> {
  const { stdin, stderr, env } = terminal;
  if (!stdin.isTTY || !stderr.isTTY)
    throw new UsageError(`say the answer, since there is no terminal: ${approval.answers.join(", ")}`);
  const { isCancel, select } = await import("@clack/prompts");
  const { above, message } = textsOf(approval, terminal, colorsFor(stderr, env));
  for (const line of above) stderr.write(`${line}\n`);
  const over = new AbortController();
  const left = new AbortController();
  const watching = decidedElsewhere(approval.id, consent, left.signal).then((isIt) => isIt && over.abort());
  try {
    const answer = await select<BoardAnswer>({
      message,
      initialValue: "no",
      input: stdin,
      output: stderr,
      signal: over.signal,
      options: [...approval.answers]
        .reverse()
        .map((value) => ({ value, label: labelOf(value, approval.question.runs) })),
    });
    if (over.signal.aborted) return "no";
    return isCancel(answer) ? null : answer;
  } finally {
    left.abort();
    await watching;
  }
}

function labelOf(answer: BoardAnswer, runs: number): string {
  if (answer === "no") return "No";
  if (answer === "once") return runs > 1 ? `Yes, once for each of these ${runs} runs` : "Yes, once";
  return runs > 1 ? `Yes, for these ${runs} runs and all that they call` : "Yes, for this run and all that it calls";
}

async function decidedElsewhere(id: string, consent: ConsentOffer, signal: AbortSignal): Promise<boolean> {
  while (!signal.aborted) {
    await sleep(LOOK_MS, undefined, { signal }).catch(() => {});
    if (signal.aborted) return false;
    if ((await consent.show(id).catch(() => null))?.state !== "waiting") return true;
  }
  return false;
}

function approvalText(approval: Approval, terminal: Terminal): string {
  const { id, project, askedAt, digest, state, answers } = approval;
  const { above, message } = textsOf(approval, terminal, colorsFor(terminal.stdout, terminal.env));
  const end =
    state === "decided"
      ? `Decided: ${endText(approval)} (${approval.decidedAt})`
      : `Answer with \`corral approvals decide ${id}\`: ${answers.join(", ")}`;
  const about = [
    `Question ${id} of ${printableLine(project, 200)}, since ${askedAt}`,
    `digest ${digest}`,
    `asked for ${runsOf(approval)}`,
  ];
  return [...about, ...above, message, end].join("\n");
}

function whoAsks({ worker, runs }: Approval["question"]): string {
  return runs > 1 ? `${worker} (${runs} runs)` : worker;
}

/** An answer is for all of them. */
function runsOf({ question: { waiting } }: Approval): string {
  const [shown, more] = [waiting.slice(0, MAX_RUNS).map(({ run }) => run), waiting.length - MAX_RUNS];
  const named = `${waiting.length === 1 ? "run" : `these ${waiting.length} runs:`} ${shown.join(", ")}`;
  return printableLine(more > 0 ? `${named} and ${more} more` : named, 1000);
}

function textsOf({ question }: Approval, { stderr }: Terminal, colors: ReturnType<typeof colorsFor>) {
  return questionText(question, stderr.columns || DEFAULT_COLUMNS, colors, EVERYTHING);
}

function endText({ outcome, scope, directory, by, via }: Approval): string {
  const who = printableLine(by ?? "no user", 100);
  if (outcome === "timed_out") return "no answer came in time";
  if (outcome === "withdrawn") return "no run waits for the answer any more";
  const where = { terminal: "at the terminal", command: "with corral approvals", service: "through the service" };
  const place = via === null || !(via in where) ? "" : `, ${where[via as keyof typeof where]}`;
  if (outcome === "denied") return `${who} denied it${place}`;
  const how = scope === "once" ? "once" : scope === "tree" ? "for this tree of runs" : "for the session";
  return `${who} approved it ${how}${directory === null ? "" : ` (${printableLine(directory, 200)})`}${place}`;
}

/** `corral grants ls`. Needs no Engine. */
export async function listGrantsVerb(options: { readonly json?: boolean }, terminal: Terminal): Promise<number> {
  const grants = await (await consentOffered(terminal)).grants();
  printList(terminal, options.json, grants, {
    head: ["ID", "WORKER", "DIRECTORY OR HOST", "MODE", "FOR", "THROUGH", "ON THE HOST", "SINCE"],
    rowOf: (grant) => {
      const { id, worker, scope, through, grantedAt } = grant;
      const [what, mode, host] =
        "to" in grant ? [grant.to, "reach", "-"] : [grant.directory, grant.mode, grant.host ?? "-"];
      const cells = [id, worker, what, mode, scope, through.join(" > "), host, grantedAt];
      return cells.map((cell) => printableLine(String(cell)));
    },
    none: "There are no grants.",
  });
  return 0;
}

const GIVEN = /^(.+?)(?::(ro|rw))?$/s;

/** `corral grants add`. A relative path is one of the current folder, as the host knows it. */
export async function addGrantVerb(
  run: string,
  asked: string,
  options: { readonly json?: boolean },
  terminal: Terminal,
): Promise<number> {
  const [, named = "", mode = "ro"] = GIVEN.exec(asked) ?? [];
  if (named === "") throw new UsageError("the directory to grant has no name");
  if (terminal.service !== undefined && !named.startsWith("/"))
    throw new UsageError("over a host, name the directory from its root: it is one of that machine");
  const given = { path: resolve(terminal.cwd, named), mode: mode === "rw" ? "write" : "read", by: userName() } as const;
  const added = await (await consentOffered(terminal)).add(run, given);
  if (options.json) printJson(terminal, added);
  else {
    const what = `${added.mode === "write" ? "write to" : "read"} ${printableLine(added.directory, 200)}`;
    if (added.id === null) say(terminal, `Run ${added.run} could already ${what}.`);
    else say(terminal, `Run ${added.run} may ${what}. Take it back with \`corral grants revoke ${added.id}\`.`);
  }
  return 0;
}

/** `corral grants revoke`. */
export async function revokeVerb(
  asked: string,
  options: { readonly json?: boolean },
  terminal: Terminal,
): Promise<number> {
  const id = await (await consentOffered(terminal)).revoke(asked);
  if (options.json) printJson(terminal, { revoked: id });
  else say(terminal, `Grant ${id} was revoked.`);
  return 0;
}
