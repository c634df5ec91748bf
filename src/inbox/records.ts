import { createHash, createHmac, timingSafeEqual } from "node:crypto";
import type { ApprovalScope, Decision, Question } from "../approval/approver.ts";
import type { AskedAt, BoardAnswer } from "../approval/queued-approver.ts";

/** A question in the inbox, as the process that asks it has written it. Only that process changes it, and only which runs wait for it. */
export interface PostedQuestion {
  /** 12 hex digits. */
  readonly id: string;
  /** The folder of the project: absolute, without symbolic links. */
  readonly project: string;
  /** Of everything that is shown: a decision names it. */
  readonly digest: string;
  /** ISO 8601. */
  readonly askedAt: string;
  /** Where else it is asked; `board`: nowhere. */
  readonly at: AskedAt;
  readonly answers: readonly BoardAnswer[];
  /** Without an answer for so long it is denied. Null: by a version of Corral that did not say it. */
  readonly timeoutMs: number | null;
  readonly question: Question;
  /** What of the names in it may be taken for something else, in words: found once, and not for each who looks. */
  readonly lookAlike: readonly string[];
}

/** How a question has ended. It is written once, and never changed. */
export interface QuestionEnd {
  /** Of the question as it was shown to the one who decided. */
  readonly digest: string;
  /** ISO 8601. */
  readonly decidedAt: string;
  readonly outcome: Decision["outcome"] | "withdrawn";
  readonly scope: ApprovalScope | null;
  /** For a grant: the directory that was chosen in place of the requested one. */
  readonly directory: string | null;
  /** Null: no user, since no answer came in time or the run has ended. */
  readonly by: string | null;
  /** Where it was decided: where it was asked, with `corral approvals`, or by a client of the service. */
  readonly via: Exclude<AskedAt, "board"> | "command" | "service" | null;
}

export interface StoredQuestion extends PostedQuestion {
  /** Null: it waits. */
  readonly end: QuestionEnd | null;
}

/** A place in the order of a list: a time, and the id of a question of that time. */
export const APPROVAL_CURSOR = /^(\d{1,15}(?:\.\d{1,9})?)-([0-9a-f]{12})$/;

/** Of one question, and not of another one that shows the same. */
export function questionDigest(id: string, question: Question): string {
  return createHash("sha256")
    .update(`${id}\n${JSON.stringify(question)}`)
    .digest("hex");
}

/** Names the owner for those who look whether it is alive. */
export interface QuestionFile
  extends Omit<PostedQuestion, "lookAlike" | "timeoutMs">,
    Partial<Pick<PostedQuestion, "lookAlike" | "timeoutMs">> {
  readonly owner: string;
}

type Kind = "question" | "end";

/** What a file of the inbox holds. The seal is for this kind and this id: no file can take the place of another one. */
export function sealedText(key: Buffer, kind: Kind, id: string, value: QuestionFile | QuestionEnd): string {
  const json = JSON.stringify(value);
  return `${sealOf(key, kind, id, json)}\n${json}\n`;
}

/** Null: not exactly what a process with this key has written. */
export function unsealedText(key: Buffer, kind: "question", id: string, text: string): QuestionFile | null;
export function unsealedText(key: Buffer, kind: "end", id: string, text: string): QuestionEnd | null;
export function unsealedText(key: Buffer, kind: Kind, id: string, text: string): QuestionFile | QuestionEnd | null {
  // `s`: JSON.stringify leaves U+2028 and U+2029 as they are, and a worker chooses its texts.
  const [, seal = "", json = ""] = /^([0-9a-f]{64})\n(.*)\n$/s.exec(text) ?? [];
  const expected = Buffer.from(sealOf(key, kind, id, json));
  const given = Buffer.from(seal);
  if (given.length !== expected.length || !timingSafeEqual(given, expected)) return null;
  return JSON.parse(json) as QuestionFile | QuestionEnd;
}

function sealOf(key: Buffer, kind: Kind, id: string, json: string): string {
  return createHmac("sha256", key).update(`inbox\0${kind}\0${id}\0${json}`).digest("hex");
}
