import { createHash, type Hash } from "node:crypto";
import type { Agent, ClientRequest, IncomingMessage, ServerResponse } from "node:http";
import { request as requestOf } from "../../platform/http.ts";
import { pathMatches } from "../../sandbox/network/path-glob.ts";
import type { NetworkRule } from "../../sandbox/network/rule.ts";
import type { Redactor } from "../../secrets/read-secret.ts";
import { BOUNDS, type HostTraffic, targetText } from "../model/outlet.ts";
import { pump } from "../traffic/traffic.ts";
import {
  endToEnd,
  Faulty,
  type HeaderLines,
  type HeadFault,
  headerLines,
  type Outgoing,
  outgoingHeaders,
  type RequestHead,
  valuesOf,
} from "./heads.ts";

/** These would lead the client away from the plain HTTP of its cell. */
const NOT_FOR_CELLS = ["alt-svc", "strict-transport-security", "public-key-pins", "clear-site-data"];
const WITH_URLS = ["location", "content-location", "link", "refresh"];

export interface Changes {
  /** How a URL of the host is written in the cell. */
  readonly urls: (text: string) => string;
  readonly replacements: readonly Replacement[];
  readonly redactor: Redactor | null;
  /** True if the body may become longer or shorter. */
  readonly isBodyChanged: boolean;
}

/** The headers of an answer as the cell gets them, as Node's flat list. */
function incomingHeaders(answer: IncomingMessage, { urls, replacements, redactor, isBodyChanged }: Changes): string[] {
  const dropped = new Set([...NOT_FOR_CELLS, ...(isBodyChanged ? ["content-length", "accept-ranges"] : [])]);
  const kept = endToEnd(headerLines(answer.rawHeaders)).filter(([name]) => !dropped.has(name.toLowerCase()));
  return kept.flatMap(([name, value]) => {
    const inside = WITH_URLS.includes(name.toLowerCase()) ? replacedText(urls(value), replacements) : value;
    return redactor === null ? [name, inside] : [redactor.text(name).replace(/[^\w-]/g, "-"), redactor.text(inside)];
  });
}

/** Null if the answer can be read in one way; else why not. */
function answerFormFault(answer: IncomingMessage, whole: boolean): string | null {
  if ((answer.statusCode ?? 0) < 200) return "no status";
  const lines: HeaderLines = headerLines(answer.rawHeaders);
  const codings = valuesOf(lines, "transfer-encoding");
  if (codings.length > 1 || (codings[0] ?? "chunked").toLowerCase() !== "chunked")
    return "an unknown Transfer-Encoding";
  const encoded = valuesOf(lines, "content-encoding").some((value) => value.trim().toLowerCase() !== "identity");
  return whole && encoded ? "an encoding that was not asked for, so Corral cannot read it" : null;
}

/** Compares a file with its digests on its way. Its last piece is held back, so that a wrong file is never complete. */
class CheckedFile implements BodyChange {
  readonly #digests: readonly string[];
  readonly #hashes: ReadonlyMap<string, Hash>;
  #held: Buffer = EMPTY_BODY;

  /** Each digest is `sha512-BASE64`, as in Subresource Integrity; any of them must match. */
  constructor(digests: readonly string[]) {
    this.#digests = digests;
    const algorithms = new Set(digests.map((digest) => digest.slice(0, digest.indexOf("-"))));
    const known = [...algorithms].filter((name) => ["sha256", "sha384", "sha512"].includes(name));
    this.#hashes = new Map(known.map((name) => [name, createHash(name)]));
  }

  /** The piece before this one. */
  add(piece: Buffer): Buffer {
    for (const hash of this.#hashes.values()) hash.update(piece);
    const before = this.#held;
    this.#held = piece;
    return before;
  }

  /** The last piece; null if the file is another one. */
  end(): Buffer | null {
    const found = [...this.#hashes].map(([name, hash]) => `${name}-${hash.digest("base64")}`);
    return found.some((digest) => this.#digests.includes(digest)) ? this.#held : null;
  }
}

export interface AnswerPass extends Omit<Changes, "isBodyChanged"> {
  readonly response: ServerResponse;
  readonly head: RequestHead;
  readonly rule: NetworkRule;
  readonly line: HostTraffic;
  /** True if the answer is changed or compared, so that all of it must come as it is. */
  readonly whole: boolean;
}

/** Passes an answer on to the cell. Resolves when it has ended, with a fault if it was not passed on as a whole. */
function passAnswer(answer: IncomingMessage, pass: AnswerPass): Promise<HeadFault | null> {
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
): Promise<HeadFault | null> {
  return new Promise((resolve) => {
    const stop = (fault: HeadFault): void => {
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
  return changes.length === 0 ? null : chained(changes);
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

export interface Exchange extends Outgoing, AnswerPass {
  readonly request: IncomingMessage;
  readonly agent: Agent;
  /** True if the client waits for 100 (Continue) before it sends the body. */
  readonly waits: boolean;
}

/** Sends a judged request to its host and the answer back. Resolves at the end of the answer, with the fault if there is one. */
export async function exchange(parts: Exchange): Promise<HeadFault | null> {
  const { head } = parts;
  const first = await answerOf(parts);
  // A host may close a kept connection at the moment in which the next request is sent.
  const mayRepeat = head.body === 0 && ["GET", "HEAD", "OPTIONS"].includes(head.method);
  const answer = first === "stale" && mayRepeat ? await answerOf(parts) : first;
  if (answer === "stale") return unreachable(parts, "closed the connection");
  return "reason" in answer ? answer : await passAnswer(answer, parts);
}

function answerOf(parts: Exchange): Promise<IncomingMessage | HeadFault | "stale"> {
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
  fail: (fault: HeadFault) => void,
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

function unreachable({ target }: Exchange, why: string): HeadFault {
  return { reason: "unreachable", detail: `${targetText(target)} ${why}.` };
}

/** Changes or checks a body that arrives in pieces. */
interface BodyChange {
  /** What may be passed on so far. */
  add(piece: Buffer): Buffer;
  /** The rest; null if the body may not be passed on to its end. */
  end(): Buffer | null;
}

const EMPTY_BODY = Buffer.alloc(0);

function redacting(redactor: Redactor): BodyChange {
  const pieces = redactor.pieces();
  return {
    add: (piece) => Buffer.from(pieces.add(piece.toString("latin1")), "latin1"),
    end: () => Buffer.from(pieces.end(), "latin1"),
  };
}

/** One after the other. */
function chained(changes: readonly BodyChange[]): BodyChange {
  return {
    add: (piece) => changes.reduce((bytes, change) => (bytes.length === 0 ? bytes : change.add(bytes)), piece),
    end() {
      let rest: Buffer = EMPTY_BODY;
      for (const change of changes) {
        const before = rest.length === 0 ? EMPTY_BODY : change.add(rest);
        const last = change.end();
        if (last === null) return null;
        rest = Buffer.concat([before, last]);
      }
      return rest;
    },
  };
}

export interface Replacement {
  readonly from: string;
  readonly to: string;
}

/** Replaces texts, also those that are cut into pieces. Of two that begin alike the longer one must come first. */
function replacing(replacements: readonly Replacement[]): BodyChange {
  const longest = Math.max(0, ...replacements.map(({ from }) => from.length));
  let held = "";
  return {
    add(piece) {
      const text = held + piece.toString("latin1");
      const clean = replacedText(text, replacements);
      const kept = beginningAtEnd(clean, replacements, longest);
      held = clean.slice(clean.length - kept);
      return Buffer.from(clean.slice(0, clean.length - kept), "latin1");
    },
    end() {
      const rest = Buffer.from(held, "latin1");
      held = "";
      return rest;
    },
  };
}

function replacedText(text: string, replacements: readonly Replacement[]): string {
  return replacements.reduce((changed, { from, to }) => changed.replaceAll(from, to), text);
}

/** How many characters at the end of a text begin one of the texts. */
function beginningAtEnd(text: string, replacements: readonly Replacement[], longest: number): number {
  for (let length = Math.min(longest - 1, text.length); length > 0; length -= 1) {
    const end = text.slice(-length);
    if (replacements.some(({ from }) => from.startsWith(end))) return length;
  }
  return 0;
}
