import { z } from "zod";
import type { ApprovalRequest, Decision } from "../../approval/approver.ts";
import { examine } from "../../json/parse-json.ts";
import { sha256 } from "../../platform/sha256.ts";
import { APPROVAL_OPERATIONS } from "../../sandbox/approval.ts";
import { present } from "../../text/present.ts";

/* What a machine and a coordinator write to each other about a question. Each reads it as if an attacker had written it. */

const name = z.string().min(1).max(200);
const path = z.string().max(8192);
const text = z.string().max(256 * 1024);

const question = z.strictObject({
  worker: name,
  through: z.array(name).max(100).optional(),
  operations: z.array(z.enum(APPROVAL_OPERATIONS)).min(1).max(2),
  paths: z.array(path).max(50_000),
  to: z.string().max(300).optional(),
  callee: name.optional(),
  input: text.optional(),
  command: text.optional(),
  line: text.optional(),
  why: z.string().max(10_000).optional(),
  diff: text.optional(),
});

/** What a machine says of a question. Whose it is, the store knows. */
export type WireQuestion = z.infer<typeof question>;

export function questionJson(asked: ApprovalRequest): string {
  const { worker, through, operations, paths, to, callee, input, command, line, why, diff } = asked;
  return JSON.stringify({
    worker,
    through,
    operations,
    paths,
    to,
    callee,
    input,
    command,
    line,
    why,
    diff,
  });
}

/** Null if it has not the shape of a question. */
export function parsedQuestion(json: string): WireQuestion | null {
  const parsed = examine(question, jsonOf(json));
  return parsed.success ? parsed.data : null;
}

const answer = z.strictObject({
  /** Of the text of the question: an answer is to this one and no other. */
  question: z.string().length(64),
  outcome: z.enum(["approved", "denied", "timed_out"]),
  scope: z.enum(["once", "tree"]),
  reason: z.string().max(4000),
  by: z.string().max(1000).optional(),
});

const MAX_REASON = 2000;
const MAX_BY = 300;

/** A machine gets no answer for longer than a tree of runs: its coordinator's session is not its own. */
export function answerText(question: string, { outcome, scope, reason, by }: Decision): string {
  const lasting = scope === "once" ? "once" : "tree";
  const who = by === undefined ? {} : { by: by.slice(0, MAX_BY).toWellFormed() };
  const said = { outcome, scope: lasting, reason: reason.slice(0, MAX_REASON).toWellFormed(), ...who };
  return JSON.stringify({ question: sha256(question), ...said });
}

/** Null if it is no answer to the question with this text. */
export function parsedAnswer(question: string, json: string): Decision | null {
  const parsed = examine(answer, jsonOf(json));
  if (!parsed.success || parsed.data.question !== sha256(question)) return null;
  const { outcome, scope, reason, by } = parsed.data;
  return { outcome, scope, reason, ...present({ by }) };
}

function jsonOf(json: string): unknown {
  try {
    return JSON.parse(json);
  } catch {
    return undefined;
  }
}
