import type { IncomingMessage } from "node:http";
import type { Readable } from "node:stream";
import { Busboy, type BusboyInstance } from "@fastify/busboy";
import { refuseEncoded } from "./body.ts";
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

/**
 * Reads a form: the part `request`, and files, each of which goes to `keep` as it comes. Nothing is held in memory but the JSON.
 *
 * @throws ServiceFault
 */
export async function readForm(
  request: IncomingMessage,
  keep: (content: Readable) => Promise<string>,
  limits: UploadLimits = UPLOAD_LIMITS,
): Promise<{ readonly request: string; readonly files: readonly UploadedFile[] }> {
  refuseEncoded(request);
  const tooLarge = (what: string): ServiceFault => new ServiceFault(413, "TOO_LARGE", what);
  if (Number(request.headers["content-length"] ?? 0) > limits.totalBytes) throw tooLarge("the files are too large");
  const form = formOf(request, limits);
  const done = Promise.withResolvers<void>();
  const kept: Promise<UploadedFile>[] = [];
  const contents = new Set<Readable>();
  const names = new Set<string>();
  let text: string | null = null;
  let total = 0;
  const fail = (error: unknown): void => {
    done.reject(error);
    request.unpipe(form);
    form.destroy();
    // The parser ends no file that breaks off: who writes it would wait for the rest.
    for (const content of contents) content.destroy(new Error("the upload has ended"));
  };
  form.on("field", (name, value, _, isCut) => {
    if (name !== "request" || text !== null) return fail(wrong("the form has one part `request`, and files"));
    if (isCut) return fail(tooLarge(`the part \`request\` has more than ${limits.requestBytes} bytes`));
    text = value;
  });
  form.on("file", (_, content, name) => {
    const fault = nameFault(name, names);
    if (fault !== null) {
      content.resume();
      return fail(wrong(fault));
    }
    names.add(name);
    contents.add(content);
    content.once("close", () => contents.delete(content));
    content.on("limit", () => fail(tooLarge(`a file has more than ${limits.fileBytes} bytes`)));
    const one = keep(content).then((path) => ({ name, path }));
    one.catch(fail);
    kept.push(one);
  });
  form.on("filesLimit", () => fail(tooLarge(`there are more than ${limits.files} files`)));
  form.on("fieldsLimit", () => fail(wrong("the form has one part `request`, and files")));
  form.on("partsLimit", () => fail(tooLarge("the form has too many parts")));
  form.on("error", () => fail(wrong("the form cannot be read")));
  form.on("finish", () => done.resolve());
  request.on("data", (chunk: Buffer) => {
    total += chunk.length;
    if (total > limits.totalBytes) fail(tooLarge("the files are too large"));
  });
  request.once("close", () => {
    if (!request.complete) fail(wrong("the request ended in the middle"));
  });
  request.pipe(form);
  try {
    await done.promise;
    const files = await Promise.all(kept);
    if (text === null) throw wrong("the part `request` is missing: the JSON of the request");
    return { request: text, files };
  } catch (error) {
    // What is still being written must not outlive the answer.
    await Promise.allSettled(kept);
    throw error;
  }
}

function formOf(request: IncomingMessage, { requestBytes, files, fileBytes }: UploadLimits): BusboyInstance {
  const contentType = request.headers["content-type"] ?? "";
  try {
    return new Busboy({
      headers: { "content-type": contentType },
      // Names with a folder are refused, and not shortened to another name.
      preservePath: true,
      limits: {
        fieldNameSize: 100,
        fieldSize: requestBytes,
        fields: 2,
        files,
        fileSize: fileBytes,
        parts: files + 2,
        headerPairs: 20,
        headerSize: 8192,
      },
    });
  } catch {
    throw wrong("the form has no boundary");
  }
}

const MAX_NAME_BYTES = 255;

function nameFault(name: string | undefined, taken: ReadonlySet<string>): string | null {
  if (name === undefined || name === "") return "each file needs a `filename`";
  if (Buffer.byteLength(name) > MAX_NAME_BYTES) return `a file name has more than ${MAX_NAME_BYTES} bytes`;
  if (name === "." || name === ".." || /[/\\\p{Cc}\p{Cs}]/u.test(name))
    return "a file name is one name without a folder";
  return taken.has(name) ? "two files have the same name" : null;
}

function wrong(message: string): ServiceFault {
  return new ServiceFault(400, "WRONG_REQUEST", message);
}
