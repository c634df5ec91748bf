import type { Agent, ClientRequest, IncomingMessage } from "node:http";
import { request as requestOf } from "../../platform/http.ts";
import { pump } from "../carry/pump.ts";
import { BOUNDS } from "../model/bounds.ts";
import { targetText } from "../model/outlet.ts";
import { type AnswerPass, passAnswer } from "./answer.ts";
import { type Fault, Faulty } from "./fault.ts";
import { type Outgoing, outgoingHeaders } from "./outgoing-headers.ts";

export interface Exchange extends Outgoing, AnswerPass {
  readonly request: IncomingMessage;
  readonly agent: Agent;
  /** True if the client waits for 100 (Continue) before it sends the body. */
  readonly waits: boolean;
}

/** Sends a judged request to its host and the answer back. Resolves at the end of the answer, with the fault if there is one. */
export async function exchange(parts: Exchange): Promise<Fault | null> {
  const { head } = parts;
  const first = await answerOf(parts);
  // A host may close a kept connection at the moment in which the next request is sent.
  const mayRepeat = head.body === 0 && ["GET", "HEAD", "OPTIONS"].includes(head.method);
  const answer = first === "stale" && mayRepeat ? await answerOf(parts) : first;
  if (answer === "stale") return unreachable(parts, "closed the connection");
  return "reason" in answer ? answer : await passAnswer(answer, parts);
}

function answerOf(parts: Exchange): Promise<IncomingMessage | Fault | "stale"> {
  const { head, target, agent, request, response } = parts;
  const sent = requestOf({
    agent,
    host: target.host,
    port: target.port,
    method: head.method,
    path: head.path,
    headers: outgoingHeaders(parts),
    setHost: false,
    maxHeaderSize: BOUNDS.headerBytes,
    insecureHTTPParser: false,
  });
  // Also if the host ignores that it is asked to close.
  if (head.body !== 0) sent.shouldKeepAlive = false;
  const abort = (): void => void sent.destroy();
  response.once("close", abort);
  sent.once("close", () => response.off("close", abort));
  return new Promise((resolve) => {
    sent.once("response", resolve);
    sent.on("error", (error: NodeJS.ErrnoException) => {
      const why = error.code?.startsWith("HPE_") ? "answers with malformed HTTP" : "closed the connection";
      if (error instanceof Faulty) resolve(error.fault);
      else resolve(sent.reusedSocket && error.code === "ECONNRESET" ? "stale" : unreachable(parts, why));
    });
    // Node says nothing else about a host that answers with another protocol.
    sent.once("close", () => resolve(unreachable(parts, "closed the connection")));
    request.once("error", abort);
    sendBody(parts, sent, resolve);
  });
}

function sendBody(
  { head, request, response, line, waits }: Exchange,
  sent: ClientRequest,
  fail: (fault: Fault) => void,
) {
  if (head.body === 0) {
    sent.end();
    return;
  }
  if (waits) response.writeContinue();
  pump(request, sent, (piece) => {
    if (sent.destroyed) return false;
    if (line.up(piece.length)) return true;
    fail({ reason: "limit", detail: "The budget for uploads is used up." });
    sent.destroy();
    return false;
  });
}

function unreachable({ target }: Exchange, why: string): Fault {
  return { reason: "unreachable", detail: `${targetText(target)} ${why}.` };
}
