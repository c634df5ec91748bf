import { posix } from "node:path";
import type { ApprovalRequest } from "../../approval/approver.ts";
import {
  decideShell,
  describeShellDecision,
  type LineDecision,
  type ShellDecision,
} from "../../approval/shell-rules/decide.ts";
import type { ShellRules } from "../../approval/shell-rules/pattern.ts";
import { isRunByShells } from "../../approval/shell-rules/printed-word.ts";
import { HOME_PATH, type Plan } from "../../isolation/plan/plan.ts";
import { sha256 } from "../../platform/sha256.ts";
import { MAX_TIMER_MS } from "../../platform/within.ts";
import { canRead, parsePathIn, readablePaths } from "../../sandbox/access.ts";
import { isLooser } from "../../sandbox/approval.ts";
import { lesserNetwork } from "../../sandbox/network/rule.ts";
import { grantedSandbox, type Sandbox } from "../../sandbox/sandbox.ts";
import { ROOT } from "../../sandbox/virtual-path.ts";
import { present } from "../../text/present.ts";
import type { ExecToolRequest } from "../../tools/hands.ts";
import { ToolRefusal } from "../../tools/tool.ts";
import type { RunConsent } from "../model/environment.ts";
import { inCell, type Job } from "../model/job.ts";
import type { CheckedCommand, OnOutput } from "./exec-command.ts";

/** Names that decide which code a program loads and where its home is: the cell sets them, not a caller. */
const FIXED_NAMES = /^(HOME|CORRAL_.*|LD_.*)$/;
/** The longest argument that the kernel accepts, including its closing zero (MAX_ARG_STRLEN). */
const MAX_ARGUMENT_BYTES = 131_072;
/** Well below the kernel's limit for arguments and environment together. */
const MAX_ENV_BYTES = 1_000_000;

/** A refusal names so many hosts. */
const MAX_HOSTS = 20;

export interface CommandBounds {
  readonly id: string;
  /** Until the deadline of the run. */
  readonly leftMs: number;
  readonly onOutput: OnOutput;
}

/** A command in the form that a cell accepts. Throws `ToolRefusal` if it is not allowed. */
export function checkedCommand(
  request: ExecToolRequest,
  sandbox: Sandbox,
  plan: Plan,
  { id, leftMs, onOutput }: CommandBounds,
): CheckedCommand {
  const env = request.env ?? {};
  refuseTexts(request.command, env);
  refuseHosts(request, sandbox);
  const { limits } = plan;
  return {
    id,
    argv: ["sh", "-c", request.command],
    cwd: request.cwd === undefined ? plan.workingDir : cwdOf(request.cwd, sandbox, inMemoryOf(plan)),
    env,
    stdin: Buffer.from(request.stdin ?? ""),
    timeoutMs: Math.max(1, Math.min(request.timeoutMs ?? limits.timeoutMs, limits.timeoutMs, leftMs, MAX_TIMER_MS)),
    maxOutputBytes: limits.outputBytes,
    onOutput,
  };
}

/**
 * Refuses what {@link checkedCommand} would refuse, before there is a plan: a person is asked only about what can run.
 * `volumes`: the directories that the image declares.
 */
export async function refuseUnfit(
  request: ExecToolRequest,
  sandbox: Sandbox,
  volumes: () => Promise<readonly string[]>,
): Promise<void> {
  const { command, env = {}, cwd } = request;
  refuseTexts(command, env);
  refuseHosts(request, sandbox);
  if (cwd === undefined) return;
  try {
    cwdOf(cwd, sandbox, IN_MEMORY);
  } catch (error) {
    const others = await volumes();
    if (others.length === 0) throw error;
    cwdOf(cwd, sandbox, [...IN_MEMORY, ...others]);
  }
}

const IN_MEMORY = ["/tmp", HOME_PATH];

function inMemoryOf(plan: Plan): string[] {
  return plan.tmpfs.map((tmpfs) => tmpfs.path);
}

/** Its registries as hosts. */
function withPackages({ packages, ...request }: ExecToolRequest, { network }: Sandbox): ExecToolRequest {
  if (packages === undefined) return request;
  const rules = typeof network === "boolean" ? [] : network.allow;
  const hosts = packages.flatMap((kind) => {
    const ofKind = rules.filter((rule) => rule.packages?.kind === kind).map(({ to }) => to);
    if (ofKind.length > 0) return ofKind;
    const reason =
      network === true ? "it has the whole network, and no list of hosts" : "its network has no such preset";
    throw new ToolRefusal("BAD_NETWORK", `A command cannot be limited to the registries of \`${kind}\`: ${reason}.`);
  });
  return { ...request, network: [...new Set([...(request.network ?? []), ...hosts])] };
}

function refuseHosts({ network: only, granted }: ExecToolRequest, sandbox: Sandbox): void {
  const { network } = grantedSandbox(sandbox, granted);
  const lesser = only === undefined ? null : lesserNetwork(network, only);
  if (lesser === null || lesser.ok) return;
  const allowed = typeof network === "boolean" ? [] : network.allow.map(({ to }) => to);
  const has =
    network === true ? "" : ` Allowed: ${allowed.length === 0 ? "none" : allowed.slice(0, MAX_HOSTS).join(", ")}.`;
  throw new ToolRefusal("BAD_NETWORK", `A command cannot be limited to \`${lesser.to}\`: ${lesser.reason}.${has}`);
}

/** Refuses what the kernel would not accept: else the engine's error would look like the command's own. */
function refuseTexts(command: string, env: Readonly<Record<string, string>>): void {
  const wrong = Object.keys(env).filter((name) => !/^[A-Za-z_][A-Za-z0-9_]*$/.test(name) || FIXED_NAMES.test(name));
  if (wrong.length > 0) throw new ToolRefusal("BAD_ENVIRONMENT", `These variables cannot be set: ${wrong.join(", ")}.`);
  const settings = Object.entries(env).map(([name, value]) => `${name}=${value}`);
  if ([command, ...settings].some((text) => text.includes("\0")))
    throw new ToolRefusal("BAD_INPUT", "A command and its variables cannot hold a NUL character.");
  const tooLong = (text: string): boolean => Buffer.byteLength(text) >= MAX_ARGUMENT_BYTES;
  if (tooLong(command))
    throw new ToolRefusal(
      "COMMAND_TOO_LONG",
      `A command may have at most ${MAX_ARGUMENT_BYTES - 1} bytes. Write a long script to a file, or pass data as standard input.`,
    );
  const bytes = settings.reduce((sum, setting) => sum + Buffer.byteLength(setting) + 1, 0);
  if (bytes > MAX_ENV_BYTES || settings.some(tooLong))
    throw new ToolRefusal("BAD_ENVIRONMENT", "The variables are too long. Write large data to a file.");
}

/** A directory of the sandbox, or one of the two in-memory directories of every cell. */
function cwdOf(raw: string, sandbox: Sandbox, inMemory: readonly string[]): string {
  const plain = raw.includes("\0") ? "" : posix.normalize(raw);
  if (inMemory.some((own) => plain === own || plain.startsWith(`${own}/`))) return plain;
  const parsed = parsePathIn(sandbox, raw);
  if (!parsed.ok) throw new ToolRefusal("BAD_DIRECTORY", `A command cannot run there: ${parsed.reason}.`);
  if (parsed.path !== ROOT && !canRead(sandbox, parsed.path, { directory: true })) {
    const allowed = [...readablePaths(sandbox).map((path) => inCell(path, sandbox)), ...inMemory].join(", ");
    throw new ToolRefusal(
      "BAD_DIRECTORY",
      `A command cannot run in '${parsed.path}': it is outside the sandbox. Directories: ${allowed}.`,
    );
  }
  return inCell(parsed.path, sandbox);
}

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
  const { consent, because } = decisions.reduce((worst, one) => (isLooser(worst.consent, one.consent) ? one : worst));
  // With variables or input, the same words may do anything.
  const isPlain = stdin === "" && Object.keys(env).length === 0;
  return { consent, because, runs: line.runs, ...(isPlain ? present({ grants: line.grants }) : {}) };
}

/** All of a request in one text for the question: consent to one request is not consent to another. */
export function shownCommand({ command, cwd, env = {}, stdin = "", network, granted }: ExecToolRequest): string {
  const assignments = Object.entries(env).map(([name, value]) => `${name}=${quoted(value)}`);
  const beside = [
    ...(cwd === undefined ? [] : [`in ${quoted(cwd)}`]),
    ...(assignments.length === 0 ? [] : [`with ${assignments.join(" ")}`]),
    ...(stdin === "" ? [] : [`reading ${shownInput(stdin)}`]),
    ...(network === undefined
      ? []
      : [`reaching only ${network.length === 0 ? "nothing" : network.map(quoted).join(", ")}`]),
    ...(granted === undefined
      ? []
      : [`reaching also ${granted === true ? "all of its worker's hosts" : granted.map(quoted).join(", ")}`]),
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
  wanted: ExecToolRequest,
  { rules, sandbox }: { readonly rules: ShellRules; readonly sandbox: Sandbox },
  ask: AskConsent,
  refuseUnfit: (request: ExecToolRequest) => Promise<void>,
  signal: AbortSignal,
): Promise<ExecToolRequest> {
  const asked = withPackages(wanted, sandbox);
  const decision = shellConsent(asked, rules);
  const request = { ...asked, command: decision.runs, granted: decision.grants?.network };
  const why = describeShellDecision(decision);
  if (decision.consent === "blocked") throw new ToolRefusal("COMMAND_BLOCKED", why);
  if (decision.consent !== "ask") return request;
  await refuseUnfit(request);
  const what = { operations: ["exec"], paths: [], command: shownCommand(request), line: request.command } as const;
  await ask(what, { sentence: why }, signal);
  return request;
}

/** The subject in a refusal: `write /out/a`, or a whole sentence that says what needs approval and why. */
type Said = string | { readonly sentence: string };

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
