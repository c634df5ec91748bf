import type { IncomingMessage, ServerResponse } from "node:http";
import { pathMatches } from "../../sandbox/network/path-glob.ts";
import type { NetworkRule } from "../../sandbox/network/rule.ts";
import { BOUNDS } from "../model/bounds.ts";
import type { Line } from "../model/outlet.ts";
import { type BodyChange, inTurn, redacting } from "./body-change.ts";
import { CheckedFile } from "./checked-file.ts";
import type { Fault } from "./fault.ts";
import { answerFormFault, type Changes, incomingHeaders } from "./incoming-headers.ts";
import { replacing } from "./replaced-bytes.ts";
import type { RequestHead } from "./request-head.ts";

export interface AnswerPass extends Omit<Changes, "isBodyChanged"> {
  readonly response: ServerResponse;
  readonly head: RequestHead;
  readonly rule: NetworkRule;
  readonly line: Line;
  /** True if the answer is changed or compared, so that all of it must come as it is. */
  readonly whole: boolean;
}

/** Passes an answer on to the cell. Resolves when it has ended, with a fault if it was not passed on as a whole. */
export function passAnswer(answer: IncomingMessage, pass: AnswerPass): Promise<Fault | null> {
  const { response, head, rule, whole } = pass;
  const wrong = answerFormFault(answer, whole);
  if (wrong !== null) {
    answer.destroy();
    return Promise.resolve({ reason: "unreachable", detail: `The answer has ${wrong}.` });
  }
  const status = answer.statusCode ?? 502;
  const isFile = rule.artifacts !== undefined && head.method === "GET" && status === 200;
  // The end of the connection would be the end of the file, also of a wrong one.
  if (isFile && response.req.httpVersion === "1.0" && answer.headers["content-length"] === undefined) {
    answer.destroy();
    return Promise.resolve({ reason: "digest", detail: "A file of a lock file needs HTTP/1.1, or a Content-Length." });
  }
  // Only what a lock file names has a digest; what else such a host says is not for the cell.
  const isDropped = rule.artifacts !== undefined && !isFile && status !== 304;
  const change = isFile ? new CheckedFile(digestsOf(rule, head.path)) : textChange(answer, pass);
  const headers = incomingHeaders(answer, { ...pass, isBodyChanged: (change !== null && !isFile) || isDropped });
  const begin = (): void => {
    if (response.headersSent) return;
    response.sendDate = false;
    response.writeHead(status, statusText(answer, pass), headers);
  };
  if (isDropped) {
    answer.resume();
    begin();
    response.end();
    return Promise.resolve(null);
  }
  if (!isFile) {
    begin();
    response.flushHeaders();
  }
  return passBody(answer, pass, change, begin);
}

function passBody(
  answer: IncomingMessage,
  { response, line }: AnswerPass,
  change: BodyChange | null,
  begin: () => void,
): Promise<Fault | null> {
  return new Promise((resolve) => {
    const stop = (fault: Fault): void => {
      answer.destroy();
      resolve(fault);
    };
    const resume = (): void => {
      answer.resume();
    };
    answer.on("data", (piece: Buffer) => {
      if (!line.down(piece.length)) {
        stop({ reason: "limit", detail: "The budget for downloads is used up." });
        return;
      }
      const bytes = change === null ? piece : change.add(piece);
      if (bytes.length === 0) return;
      begin();
      if (!response.write(bytes) && response.writableLength > BOUNDS.bufferedBytes) {
        answer.pause();
        response.once("drain", resume);
      }
    });
    answer.once("end", () => {
      const rest = change?.end();
      if (rest === null) {
        stop({ reason: "digest", detail: "The file is another one than the lock file names." });
        return;
      }
      begin();
      response.end(rest);
      resolve(null);
    });
    answer.once("error", () => stop({ reason: "unreachable", detail: "The answer was cut off." }));
    response.once("close", () => {
      answer.destroy();
      resolve(null);
    });
  });
}

function textChange(answer: IncomingMessage, { redactor, replacements, rule }: AnswerPass): BodyChange | null {
  const isIndex =
    rule.packages !== undefined &&
    /^(text\/html|application\/([\w.+-]+\+)?json)\b/i.test(answer.headers["content-type"] ?? "");
  const changes = [
    ...(isIndex && replacements.length > 0 ? [replacing(replacements)] : []),
    ...(redactor === null ? [] : [redacting(redactor)]),
  ];
  return changes.length === 0 ? null : inTurn(changes);
}

function statusText(answer: IncomingMessage, { redactor }: AnswerPass): string {
  const text = (answer.statusMessage ?? "").replaceAll(/[^\t\x20-\x7e]/g, "");
  return redactor === null ? text : redactor.text(text);
}

/** Digests of every line of the lock files that may mean this path. */
function digestsOf({ artifacts = [] }: NetworkRule, url: string): readonly string[] {
  const [path = ""] = url.split("?", 1);
  const named = artifacts.filter((artifact) => artifact.path === path || pathMatches(artifact.path, path));
  return named.flatMap(({ digests }) => digests);
}
