import type { ApprovalRequest } from "../../approval/approver.ts";
import {
  decideShell,
  describeShellDecision,
  type LineDecision,
  type ShellDecision,
} from "../../approval/shell-rules/decide.ts";
import type { ShellRules } from "../../approval/shell-rules/pattern.ts";
import { isRunByShells } from "../../approval/shell-rules/printed-word.ts";
import { sha256 } from "../../platform/sha256.ts";
import { isLooser } from "../../sandbox/approval.ts";
import type { ExecToolRequest } from "../../tools/hands.ts";
import { ToolRefusal } from "../../tools/tool.ts";
import type { RunConsent } from "../model/environment.ts";
import type { Job } from "../model/job.ts";

/** Of a longer input, a person sees the beginning and a digest of the whole. */
const MAX_SHOWN_INPUT = 500;

/**
 * The verdict of a worker's shell rules on a whole request. Everything in addition to the command line is judged as part of
 * it: a directory as a `cd` before it, variables as assignments, input as a here-document. Otherwise a rule for
 * `git status` would run any program called `git` that PATH leads to.
 */
export function shellConsent(request: ExecToolRequest, rules: ShellRules): LineDecision {
  const { command, cwd, env = {}, stdin = "" } = request;
  const byDefault = (cause: "assignment" | "input", part: string): ShellDecision => ({
    consent: rules.default,
    because: { cause, part, pattern: null, why: null },
  });
  const line = decideShell(command, rules);
  const decisions: ShellDecision[] = [
    line,
    ...(cwd === undefined ? [] : [decideShell(`cd ${quoted(cwd)}`, rules)]),
    // Of a variable that shells run, the same as for an assignment in the line.
    ...Object.keys(env).map((name) =>
      isRunByShells(name) ? decideShell(`${name}=x`, rules) : byDefault("assignment", `${name}=…`),
    ),
    ...(stdin === "" ? [] : [byDefault("input", "standard input")]),
  ];
  const decision = decisions.reduce((worst, one) => (isLooser(worst.consent, one.consent) ? one : worst));
  return { ...decision, runs: line.runs };
}

/** All of a request in one text for the question: consent to one request is not consent to another. */
export function shownCommand({ command, cwd, env = {}, stdin = "", network }: ExecToolRequest): string {
  const assignments = Object.entries(env).map(([name, value]) => `${name}=${quoted(value)}`);
  const beside = [
    ...(cwd === undefined ? [] : [`in ${quoted(cwd)}`]),
    ...(assignments.length === 0 ? [] : [`with ${assignments.join(" ")}`]),
    ...(stdin === "" ? [] : [`reading ${shownInput(stdin)}`]),
    ...(network === undefined
      ? []
      : [`reaching only ${network.length === 0 ? "nothing" : network.map(quoted).join(", ")}`]),
  ];
  // Otherwise a command that ends like such a note could be confused with another command that has this note.
  if (beside.length === 0) return command.includes("\n(") ? `${command}\n(nothing beside it)` : command;
  return `${command}\n(${beside.join(", ")})`;
}

function shownInput(stdin: string): string {
  if (stdin.length <= MAX_SHOWN_INPUT) return JSON.stringify(stdin);
  const digest = sha256(stdin);
  return `${JSON.stringify(stdin.slice(0, MAX_SHOWN_INPUT))} and ${stdin.length - MAX_SHOWN_INPUT} characters more, SHA-256 ${digest}`;
}

function quoted(text: string): string {
  return `'${text.replaceAll("'", "'\\''")}'`;
}

/**
 * The request that may run: its command line as it was judged and shown. Rejects with `ToolRefusal` for a command that is
 * blocked, or that needs consent and does not get it. `refuseUnfit` is called before a person is asked.
 */
export async function agreedCommand(
  asked: ExecToolRequest,
  rules: ShellRules,
  ask: AskConsent,
  refuseUnfit: () => Promise<void>,
  signal: AbortSignal,
): Promise<ExecToolRequest> {
  const decision = shellConsent(asked, rules);
  const request = { ...asked, command: decision.runs };
  const why = describeShellDecision(decision);
  if (decision.consent === "blocked") throw new ToolRefusal("COMMAND_BLOCKED", why);
  if (decision.consent !== "ask") return request;
  await refuseUnfit();
  const what = { operations: ["exec"], paths: [], command: shownCommand(request), line: request.command } as const;
  await ask(what, { sentence: why }, signal);
  return request;
}

/** The subject in a refusal: `write /out/a`, or a whole sentence that says what needs approval and why. */
export type Said = string | { readonly sentence: string };

/** Rejects with `ToolRefusal` without consent. */
export type AskConsent = (
  what: Omit<ApprovalRequest, "run" | "root" | "worker">,
  said: Said,
  signal: AbortSignal,
) => Promise<void>;

/** Asks for the consent that a tool of this run needs. */
export function askFor(
  { run, root, worker, path }: Pick<Job, "run" | "root" | "worker" | "path">,
  { approver }: RunConsent,
): AskConsent {
  const called = path.length > 1 ? { through: path } : {};
  return async (what, said, signal) => {
    const decision = await approver.decide({ run, root, worker: worker.name, ...called, ...what }, signal);
    if (decision.outcome === "approved") return;
    const timedOut = decision.outcome === "timed_out";
    const answer = timedOut ? "no answer came in time" : `it was denied: ${decision.reason}`;
    const code = timedOut ? "APPROVAL_TIMED_OUT" : "APPROVAL_DENIED";
    const message =
      typeof said === "string"
        ? `To ${said} needs approval, and ${answer}.`
        : `${said.sentence} ${answer.charAt(0).toUpperCase()}${answer.slice(1)}.`;
    throw new ToolRefusal(code, message);
  };
}
