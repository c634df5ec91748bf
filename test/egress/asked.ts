import { type IncomingHttpHeaders, type RequestOptions, request } from "node:http";
import { text } from "node:stream/consumers";
import type { CellSide } from "./cell-side.ts";

export interface Answer {
  readonly status: number;
  readonly statusText: string;
  readonly body: string;
  readonly headers: IncomingHttpHeaders;
}

/** Asks a place of a cell by Node's client. */
export async function ask(
  cell: CellSide,
  [host, inside]: readonly [string | null, number],
  { body, ...options }: RequestOptions & { body?: string | Buffer } = {},
): Promise<Answer> {
  const port = await cell.port(host, inside);
  const authority = inside === 80 ? host : `${host}:${inside}`;
  const headers = { ...(host !== null && { host: authority ?? "" }), ...(options.headers as object) };
  const sent = request({ host: "127.0.0.1", port, agent: false, ...options, headers });
  sent.end(body);
  return await new Promise<Answer>((resolve, reject) => {
    sent.on("error", reject).on("response", (answer) => {
      const { statusCode = 0, statusMessage = "" } = answer;
      text(answer).then(
        (read) => resolve({ status: statusCode, statusText: statusMessage, body: read, headers: answer.headers }),
        reject,
      );
    });
  });
}

/** Sends these bytes to a place, and returns what came back until the connection closed. */
export async function sendRaw(
  cell: CellSide,
  [host, inside]: readonly [string | null, number],
  bytes: string | Buffer,
) {
  const socket = await cell.connect(host, inside);
  socket.write(typeof bytes === "string" ? Buffer.from(bytes, "latin1") : bytes);
  const pieces: Buffer[] = [];
  socket.on("data", (piece) => pieces.push(piece));
  await new Promise((done) => socket.once("close", done).once("end", () => socket.end()));
  return Buffer.concat(pieces).toString("latin1");
}
