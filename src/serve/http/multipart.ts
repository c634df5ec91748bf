import type { IncomingMessage } from "node:http";
import { setImmediate as nextTurn } from "node:timers/promises";
import { Dicer } from "@fastify/busboy";
import { JsonShape, MAX_JSON_VALUES, shapeProblem } from "../../json/parse-json.ts";
import { ServiceFault } from "./fault.ts";

export const UPLOAD_LIMITS = {
  /** The JSON of the part `request`. */
  requestBytes: 8 * 1024 ** 2,
  files: 1000,
  fileBytes: 1024 ** 3,
  totalBytes: 4 * 1024 ** 3,
};
type UploadLimits = Readonly<typeof UPLOAD_LIMITS>;

export interface UploadedFile {
  /** As the client names it. */
  readonly name: string;
  /** Where it was kept. */
  readonly path: string;
}

export interface FormReader {
  /** Receives the JSON of the part `request`. No file is kept before it is checked. */
  readonly begin: (request: string) => Promise<void>;
  readonly keep: (content: AsyncIterable<Buffer>) => Promise<string>;
  /** For bytes of the part `request`, which are kept in memory. */
  readonly take: (bytes: number) => void;
}

/**
 * Reads a form: the part `request` first, then files, each of which goes to `keep` as it comes. Nothing is held in memory but the JSON. A part that
 * is neither is refused: nothing of a form is left out.
 *
 * @throws ServiceFault, and what the reader throws
 */
export async function readForm(
  request: IncomingMessage,
  { begin, keep, take }: FormReader,
  limits: UploadLimits = UPLOAD_LIMITS,
): Promise<readonly UploadedFile[]> {
  refuseEncoded(request);
  if (Number(request.headers["content-length"] ?? 0) > limits.totalBytes) throw tooLarge("the files are too large");
  const form = new Dicer({ boundary: boundaryOf(request), maxHeaderPairs: MAX_HEADERS });
  const done = Promise.withResolvers<void>();
  const kept: Promise<UploadedFile>[] = [];
  const open = new Set<Dicer.PartStream>();
  const names = new Set<string>();
  let begun: Promise<void> | null = null;
  /** Parts whose headers have not come: the parser drops one whose headers never end. */
  let headless = 0;
  let total = 0;
  const fail = (error: unknown): void => {
    done.reject(error);
    request.unpipe(form);
    form.destroy();
    // The parser ends no part that breaks off: who reads it would wait for the rest.
    for (const part of open) part.destroy(new Error("the upload has ended"));
  };
  const see = (part: Dicer.PartStream, headers: Headers): void => {
    const about = partOf(headers);
    if (about.name === "request" && about.fileName !== null)
      throw wrong("the part `request` has no `filename`: it is JSON");
    if (begun === null) {
      if (about.name !== "request") throw wrong("the first part of the form is `request`, the JSON of the request");
      begun = partText(part, limits.requestBytes, take).then(begin);
      begun.catch(fail);
      return;
    }
    if (about.fileName === null) throw wrong("the form has one part `request`, and files with a `filename` each");
    if (names.size >= limits.files) throw tooLarge(`there are more than ${limits.files} files`);
    const name = about.fileName;
    const fault = nameFault(name, names);
    if (fault !== null) throw wrong(fault);
    names.add(name);
    const one = begun.then(() => keep(bounded(part, limits.fileBytes))).then((path) => ({ name, path }));
    one.catch(fail);
    kept.push(one);
  };
  form.on("part", (part) => {
    headless += 1;
    open.add(part);
    // Its reader gets it too, if there is one.
    part.on("error", () => {});
    part.once("close", () => open.delete(part));
    part.once("header", (headers) => {
      headless -= 1;
      try {
        see(part, headers as Headers);
      } catch (error) {
        part.resume();
        fail(error);
      }
    });
  });
  form.on("error", () => fail(wrong("the form cannot be read")));
  form.on("finish", () => done.resolve());
  request.on("data", (chunk: Buffer) => {
    total += chunk.length;
    if (total > limits.totalBytes) fail(tooLarge("the files are too large"));
  });
  request.once("close", () => {
    if (!request.complete) fail(brokenOff());
  });
  request.pipe(form);
  try {
    await done.promise;
    await begun;
    const files = await Promise.all(kept);
    if (begun === null) throw wrong("the part `request` is missing: the JSON of the request");
    if (headless > 0) throw wrong("the headers of a part do not end");
    return files;
  } catch (error) {
    // What is still being written must not outlive the answer.
    await Promise.allSettled(kept);
    throw error;
  }
}

const MAX_HEADERS = 20;
const MAX_NAME_BYTES = 255;

type Headers = Readonly<Record<string, readonly string[] | undefined>>;

function boundaryOf({ headers }: IncomingMessage): string {
  const given = /;\s*boundary=(?:"([^"\\]{1,70})"|([^\s";,]{1,70}))\s*(?:;|$)/i.exec(headers["content-type"] ?? "");
  const boundary = given?.[1] ?? given?.[2];
  if (boundary === undefined) throw wrong("the form has no boundary");
  return boundary;
}

/** What a part says that it is. @throws ServiceFault for anything but a field or a file */
function partOf(headers: Headers): { readonly name: string; readonly fileName: string | null } {
  const [disposition, second] = headers["content-disposition"] ?? [];
  const encoding = headers["content-transfer-encoding"]?.[0] ?? "binary";
  if (disposition === undefined || second !== undefined)
    throw wrong("each part of the form needs one header `Content-Disposition`");
  if (!/^(?:7bit|8bit|binary)$/i.test(encoding)) throw wrong("a part of the form is encoded; send files as they are");
  const fields = parametersOf(disposition);
  const name = fields.get("name") ?? "";
  if (name === "") throw wrong("each part of the form needs a `name`");
  const [plain, coded] = [fields.get("filename"), fields.get("filename*")];
  if (plain !== undefined && coded !== undefined) throw wrong("a part of the form has two file names");
  return { name, fileName: coded === undefined ? (plain ?? null) : decoded(coded) };
}

const PARAMETER = /;\s*([a-z]+\*?)=(?:"((?:[^"\\]|\\.)*)"|([^\s";]+))\s*/gy;

/** Of `form-data; name="file"; filename="a.pdf"`; the parser has the bytes of a header as characters. */
function parametersOf(header: string): ReadonlyMap<string, string> {
  const unknown = wrong('a part of the form is not described as `form-data; name="…"; filename="…"`');
  const kind = /^form-data\s*(?=;)/i.exec(header);
  if (kind === null) throw unknown;
  const fields = new Map<string, string>();
  PARAMETER.lastIndex = 0;
  const rest = header.slice(kind[0].length);
  let end = 0;
  for (const { 0: whole, 1: name = "", 2: quoted, 3: bare = "" } of rest.matchAll(PARAMETER)) {
    end += whole.length;
    if (fields.has(name)) throw wrong(`a part of the form has two of \`${name}\``);
    fields.set(name, utf8(quoted?.replaceAll(/\\(["\\])/g, "$1") ?? bare));
  }
  if (end !== rest.length) throw unknown;
  return fields;
}

function decoded(value: string): string {
  const coded = /^utf-8'[\w-]*'([^'"\s]*)$/i.exec(value)?.[1];
  try {
    if (coded !== undefined) return decodeURIComponent(coded);
  } catch {
    // It is refused below.
  }
  throw wrong("a `filename*` is written as utf-8''NAME, in percent form");
}

function utf8(bytes: string): string {
  try {
    return new TextDecoder("utf-8", { fatal: true, ignoreBOM: true }).decode(Buffer.from(bytes, "latin1"));
  } catch {
    throw wrong("a name in the form is not UTF-8");
  }
}

async function partText(part: AsyncIterable<Buffer>, maxBytes: number, take: (bytes: number) => void): Promise<string> {
  const pieces: Buffer[] = [];
  let bytes = 0;
  for await (const piece of part) {
    bytes += piece.length;
    if (bytes > maxBytes) throw tooLarge(`the part \`request\` has more than ${maxBytes} bytes`);
    take(piece.length);
    pieces.push(piece);
  }
  return Buffer.concat(pieces).toString("utf8");
}

async function* bounded(part: AsyncIterable<Buffer>, maxBytes: number): AsyncGenerator<Buffer> {
  let bytes = 0;
  for await (const piece of part) {
    bytes += piece.length;
    if (bytes > maxBytes) throw tooLarge(`a file has more than ${maxBytes} bytes`);
    yield piece;
  }
}

function nameFault(name: string, taken: ReadonlySet<string>): string | null {
  if (name === "") return "each file needs a `filename`";
  if (Buffer.byteLength(name) > MAX_NAME_BYTES) return `a file name has more than ${MAX_NAME_BYTES} bytes`;
  if (name === "." || name === ".." || /[/\\\p{Cc}\p{Cs}\p{Zl}\p{Zp}]/u.test(name))
    return "a file name is one name, without a folder and without line breaks";
  return taken.has(name) ? "two files have the same name" : null;
}

function wrong(message: string): ServiceFault {
  return new ServiceFault(400, "WRONG_REQUEST", message);
}

function tooLarge(message: string): ServiceFault {
  return new ServiceFault(413, "TOO_LARGE", message);
}

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

function brokenOff(): ServiceFault {
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
function refuseEncoded({ headers }: IncomingMessage): void {
  if (headers["content-encoding"] !== undefined)
    throw new ServiceFault(415, "WRONG_CONTENT_TYPE", "the service takes no compressed bodies");
}

/** True if the request brings a body. */
export function hasBody({ headers }: IncomingMessage): boolean {
  return headers["transfer-encoding"] !== undefined || Number(headers["content-length"] ?? 0) > 0;
}
