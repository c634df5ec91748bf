import type { Operation } from "../sandbox/approval.ts";
import {
  type ApprovalOperation,
  type ApprovalRequest,
  type Approver,
  type Decision,
  denied,
  isGrant,
} from "./approver.ts";
import { checkedPath } from "./checked-path.ts";
import { parseNameGlob, parsePathGlob } from "./path-glob.ts";
import { decideShell } from "./shell-rules/decide.ts";

/** What a project says beforehand of what would be asked for (`approval.rules` of `corral.yaml`). Absent: any. */
export interface ApprovalRule {
  /** A glob. */
  readonly worker?: string;
  readonly operations?: readonly ApprovalOperation[];
  /** Globs of virtual paths; for grants, of the directory that is asked for. */
  readonly paths?: readonly string[];
  /** Words, as `shell-rules/pattern.ts` reads them. */
  readonly command?: string;
  readonly decide: "approve" | "deny";
  /** Told to whoever is refused. */
  readonly why?: string;
}

/** The first rule that speaks of a request decides it; what no rule speaks of is `next`'s to decide. */
export function ruledApprover(rules: readonly ApprovalRule[], next: Approver): Approver {
  const decideByRules = ruling(rules);
  return { decide: async (request, signal) => decideByRules(request) ?? (await next.decide(request, signal)) };
}

/** What the rules say of a request; null where none speaks of it. */
export function ruling(rules: readonly ApprovalRule[]): (request: ApprovalRequest) => Decision | null {
  const spoken = rules.map(({ decide, ...rule }) => (decide === "approve" ? approves(rule) : denies(rule)));
  return (request) => {
    const index = spoken.findIndex((speaksOf) => speaksOf(request));
    const rule = rules[index];
    return rule === undefined ? null : decisionOf(rule, index + 1);
  };
}

/** Whether a rule may approve what a worker writes or deletes in a directory: which files that are, only a run can tell. */
export function mayApprove(
  rules: readonly ApprovalRule[],
  { worker, operations, directory }: { worker: string; operations: readonly Operation[]; directory: string },
): boolean {
  return rules.some(
    (rule) =>
      rule.decide === "approve" &&
      rule.command === undefined &&
      (rule.worker === undefined || parseNameGlob(rule.worker)(worker)) &&
      operations.some((operation) => rule.operations?.includes(operation) ?? true) &&
      (rule.paths?.some((glob) => parsePathGlob(glob).touches(directory)) ?? true),
  );
}

function decisionOf({ decide, why }: ApprovalRule, number: number): Decision {
  const because = why === undefined ? "" : `: ${why}`;
  if (decide === "deny") return denied(`rule ${number} of the project's approval rules denies it${because}`);
  const reason = `rule ${number} of the project's approval rules approves it${because}`;
  return { outcome: "approved", scope: "session", reason };
}

type Terms = Omit<ApprovalRule, "decide" | "why">;

/** Read narrowly: it must speak of all that is asked for, and of a path only where there is one. */
function approves({ worker, operations, paths, command }: Terms): (request: ApprovalRequest) => boolean {
  const isWorker = worker === undefined ? () => true : parseNameGlob(worker);
  const globs = paths?.map(parsePathGlob);
  const shown = command === undefined ? null : shellRules("ask", command, "pre_approved");
  return (request) =>
    isWorker(request.worker) &&
    request.operations.length > 0 &&
    request.operations.every((operation) => operations?.includes(operation) ?? true) &&
    (globs === undefined ||
      isAllOf(targetsOf(request), (path) => checkedPath(path) !== null && globs.some((glob) => glob.matches(path)))) &&
    (shown === null ||
      (request.command !== undefined && decideShell(request.command, shown).consent === "pre_approved"));
}

/**
 * Read widely: it is enough that it may speak of a part of what is asked for. With a rule that approves behind it, a
 * path that is denied would else be approved among others, or below a directory.
 */
function denies({ worker, operations, paths, command }: Terms): (request: ApprovalRequest) => boolean {
  const isWorker = worker === undefined ? () => true : parseNameGlob(worker);
  const globs = paths?.map(parsePathGlob);
  const blocked = command === undefined ? null : shellRules("pre_approved", command, "blocked");
  return (request) => {
    const { directory, command: shown, line = shown } = request;
    const targets = [...request.paths, ...(directory === undefined ? [] : [directory])];
    return (
      isWorker(request.worker) &&
      (operations === undefined || request.operations.some((operation) => operations.includes(operation))) &&
      (globs === undefined ||
        targets.some((path) => checkedPath(path) === null || globs.some((glob) => glob.touches(path)))) &&
      (blocked === null || (line !== undefined && decideShell(line, blocked).consent === "blocked"))
    );
  };
}

function shellRules(otherwise: "ask" | "pre_approved", pattern: string, approval: "pre_approved" | "blocked") {
  return { default: otherwise, rules: [{ pattern, approval }] } as const;
}

/** What must be agreed to. A grant is of its directory, whatever path in it was touched first. */
function targetsOf({ operations, paths, directory }: ApprovalRequest): readonly string[] {
  const granted = directory === undefined ? [] : [directory];
  if (operations.every(isGrant)) return granted;
  return operations.some(isGrant) ? [...granted, ...paths] : paths;
}

/** Nothing at all is not enough: a request without a path says nothing about where. */
function isAllOf(paths: readonly string[], test: (path: string) => boolean): boolean {
  return paths.length > 0 && paths.every(test);
}
