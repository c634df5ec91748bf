import type { ChangeOperation } from "../sandbox/approval.ts";
import { isAmong } from "../sandbox/network/rule.ts";
import {
  type ApprovalOperation,
  type ApprovalRequest,
  type Approver,
  type Decision,
  denied,
  isGrant,
  isHostExecuted,
} from "./approver.ts";
import { checkedPath, parseNameGlob, parsePathGlob } from "./memory.ts";
import { decideShell } from "./shell-rules/decide.ts";
import { type Reading, readLine } from "./shell-rules/reading.ts";

/** A project's advance decision on requests (`approval.rules` in `corral.yaml`). An absent term matches any request. */
export interface ApprovalRule {
  /** A glob. */
  readonly worker?: string;
  readonly operations?: readonly ApprovalOperation[];
  /** Globs of virtual paths; for grants, of the requested directory. */
  readonly paths?: readonly string[];
  /** For `grant_network`: entries as in an allow list, such as `*.example.org:443`. */
  readonly hosts?: readonly string[];
  /** Words, in the syntax of `shell-rules/pattern.ts`. */
  readonly command?: string;
  readonly decide: "approve" | "deny";
  /** Shown to the refused worker and its caller. */
  readonly why?: string;
}

/** The first matching rule decides a request; if none matches, `next` decides. */
export function ruledApprover(rules: readonly ApprovalRule[], next: Approver): Approver {
  const decideByRules = ruling(rules);
  return { decide: async (request, signal) => decideByRules(request) ?? (await next.decide(request, signal)) };
}

/** The decision of the first matching rule; null if none matches. */
export function ruling(rules: readonly ApprovalRule[]): (request: ApprovalRequest) => Decision | null {
  const tests = rules.map(({ decide, ...rule }) => (decide === "approve" ? approves(rule) : denies(rule)));
  return (request) => {
    const read = reader();
    const index = tests.findIndex((matches) => matches(request, read));
    const rule = rules[index];
    return rule === undefined ? null : decisionOf(rule, index + 1);
  };
}

/** True if a rule may approve a worker's writes or deletions in a directory. Only a run knows the exact files. */
export function mayApprove(
  rules: readonly ApprovalRule[],
  { worker, operations, directory }: { worker: string; operations: readonly ChangeOperation[]; directory: string },
): boolean {
  return rules.some(
    (rule) =>
      rule.decide === "approve" &&
      rule.command === undefined &&
      rule.hosts === undefined &&
      (rule.worker === undefined || parseNameGlob(rule.worker)(worker)) &&
      operations.some((operation) => rule.operations?.includes(operation) ?? true) &&
      (rule.paths?.some((glob) => parsePathGlob(glob).touches(directory)) ?? true),
  );
}

/** Whether a request matches a rule. */
type Test = (request: ApprovalRequest, read: Reader) => boolean;
/** Reads each command line once, however many rules there are. */
type Reader = (line: string) => () => Reading;

function reader(): Reader {
  const readings = new Map<string, Reading>();
  return (line) => () => {
    const reading = readings.get(line) ?? readLine(line);
    readings.set(line, reading);
    return reading;
  };
}

function decisionOf({ decide, why }: ApprovalRule, number: number): Decision {
  const because = why === undefined ? "" : `: ${why}`;
  if (decide === "deny") return denied(`rule ${number} of the project's approval rules denies it${because}`);
  const reason = `rule ${number} of the project's approval rules approves it${because}`;
  return { outcome: "approved", scope: "session", reason };
}

type Terms = Omit<ApprovalRule, "decide" | "why">;

/** The narrow reading: the rule must match everything in the request, and a rule with `paths` needs a path. None is about what the host executes. */
function approves({ worker, operations, paths, hosts, command }: Terms): Test {
  const isWorker = worker === undefined ? () => true : parseNameGlob(worker);
  const globs = paths?.map(parsePathGlob);
  const shown = command === undefined ? null : shellRules("ask", command, "pre_approved");
  return (request, read) =>
    isWorker(request.worker) &&
    !isHostExecuted(request) &&
    request.operations.length > 0 &&
    request.operations.every((operation) => operations?.includes(operation) ?? true) &&
    (globs === undefined ||
      isAllOf(targetsOf(request), (path) => checkedPath(path) !== null && globs.some((glob) => glob.matches(path)))) &&
    (hosts === undefined || (request.to !== undefined && isAmong(request.to, hosts))) &&
    (shown === null ||
      (request.command !== undefined &&
        decideShell(request.command, shown, read(request.command)).consent === "pre_approved"));
}

/**
 * The wide reading: it is enough that the rule may match a part of the request. Otherwise a later rule could approve a
 * denied path together with others, or below a directory.
 */
function denies({ worker, operations, paths, hosts, command }: Terms): Test {
  const isWorker = worker === undefined ? () => true : parseNameGlob(worker);
  const globs = paths?.map(parsePathGlob);
  const blocked = command === undefined ? null : shellRules("pre_approved", command, "blocked");
  return (request, read) => {
    const { directory, command: shown, line = shown } = request;
    const targets = [...request.paths, ...(directory === undefined ? [] : [directory])];
    return (
      isWorker(request.worker) &&
      (operations === undefined || request.operations.some((operation) => operations.includes(operation))) &&
      (globs === undefined ||
        targets.some((path) => checkedPath(path) === null || globs.some((glob) => glob.touches(path)))) &&
      (hosts === undefined || (request.to !== undefined && isAmong(request.to, hosts))) &&
      (blocked === null || (line !== undefined && decideShell(line, blocked, read(line)).consent === "blocked"))
    );
  };
}

function shellRules(otherwise: "ask" | "pre_approved", pattern: string, approval: "pre_approved" | "blocked") {
  return { default: otherwise, rules: [{ pattern, approval }] } as const;
}

/** The paths that need approval. For a grant it is its directory, whichever path in it was accessed first. */
function targetsOf({ operations, paths, directory }: ApprovalRequest): readonly string[] {
  const granted = directory === undefined ? [] : [directory];
  if (operations.every(isGrant)) return granted;
  return operations.some(isGrant) ? [...granted, ...paths] : paths;
}

/** False for an empty list: a request without a path does not match a rule with `paths`. */
function isAllOf(paths: readonly string[], test: (path: string) => boolean): boolean {
  return paths.length > 0 && paths.every(test);
}
