import type { IncomingMessage } from "node:http";
import { setImmediate as nextTurn } from "node:timers/promises";
import { JsonShape, MAX_JSON_VALUES, shapeProblem } from "../../json/parse-json.ts";
import { ServiceFault } from "./fault.ts";

/** The type of a body, without its parameters. */
export function contentTypeOf({ headers }: IncomingMessage): string {
  return (headers["content-type"] ?? "").split(";")[0]?.trim().toLowerCase() ?? "";
}

/**
 * The body as JSON. A page of another site can send a form or plain text without asking, so nothing else is taken. `take`: called with the
 * size of each piece that is kept.
 *
 * @throws ServiceFault, and what `take` throws
 */
export async function readJson(
  request: IncomingMessage,
  maxBytes: number,
  take: (bytes: number) => void,
): Promise<unknown> {
  if (contentTypeOf(request) !== "application/json")
    throw new ServiceFault(415, "WRONG_CONTENT_TYPE", "send the body as JSON, with `content-type: application/json`");
  refuseEncoded(request);
  const tooLarge = new ServiceFault(413, "TOO_LARGE", `the body has more than ${maxBytes} bytes`);
  if (Number(request.headers["content-length"] ?? 0) > maxBytes) throw tooLarge;
  const shape = new JsonShape();
  const kept: Buffer[] = [];
  let bytes = 0;
  const see = (piece: Buffer): void => {
    bytes += piece.length;
    if (bytes > maxBytes) throw tooLarge;
    take(piece.length);
    const problem = shape.see(piece);
    if (problem !== null) throw notAccepted("the body", problem);
    kept.push(piece);
  };
  for await (const piece of piecesOf(request)) see(piece);
  // Each of these takes long for a large body: others have a turn between them.
  await nextTurn();
  const text = Buffer.concat(kept).toString("utf8");
  await nextTurn();
  const value = parsed(text, "the body");
  await nextTurn();
  return value;
}

/** The pieces of a body. @throws ServiceFault if the client breaks off */
async function* piecesOf(request: IncomingMessage): AsyncGenerator<Buffer> {
  try {
    for await (const piece of request) yield piece as Buffer;
  } catch {
    throw brokenOff();
  }
}

export function brokenOff(): ServiceFault {
  return new ServiceFault(400, "WRONG_REQUEST", "the request ended in the middle", "broken_off");
}

/** @throws ServiceFault */
export function jsonIn(text: string, what: string): unknown {
  const problem = shapeProblem(text, MAX_JSON_VALUES);
  if (problem !== null) throw notAccepted(what, problem);
  return parsed(text, what);
}

function parsed(text: string, what: string): unknown {
  try {
    return JSON.parse(text);
  } catch (error) {
    throw notAccepted(what, (error as Error).message);
  }
}

function notAccepted(what: string, problem: string): ServiceFault {
  return new ServiceFault(400, "WRONG_REQUEST", `${what} is not JSON that the service accepts: ${problem}`);
}

/** A small body could become a large one. */
export function refuseEncoded({ headers }: IncomingMessage): void {
  if (headers["content-encoding"] !== undefined)
    throw new ServiceFault(415, "WRONG_CONTENT_TYPE", "the service takes no compressed bodies");
}

/** True if the request brings a body. */
export function hasBody({ headers }: IncomingMessage): boolean {
  return headers["transfer-encoding"] !== undefined || Number(headers["content-length"] ?? 0) > 0;
}
