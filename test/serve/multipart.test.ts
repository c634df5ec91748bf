import type { IncomingMessage } from "node:http";
import { PassThrough } from "node:stream";
import { describe, expect, it } from "vitest";
import { readForm } from "../../src/serve/http/multipart.ts";

const REQUEST = 'Content-Disposition: form-data; name="request"\r\n\r\n{}';
const file = (disposition: string, more = ""): string => `Content-Disposition: ${disposition}\r\n${more}\r\ncontent`;

/** What becomes of a form with these parts, which comes in pieces of so many bytes. */
async function read(parts: readonly string[], pieceBytes = 7, end = "\r\n--b--\r\n") {
  const body = Buffer.from(`${parts.map((part) => `\r\n--b\r\n${part}`).join("")}${end}`.slice(2));
  const request = Object.assign(new PassThrough(), {
    headers: { "content-type": "multipart/form-data; boundary=b" },
    complete: true,
  });
  const kept: string[] = [];
  const begun: string[] = [];
  const form = readForm(
    request as unknown as IncomingMessage,
    {
      begin: async (json) => void begun.push(json),
      keep: async (content) => {
        let text = "";
        for await (const piece of content) text += piece.toString();
        kept.push(text);
        return String(kept.length);
      },
      take: () => {},
    },
    { requestBytes: 100, files: 3, fileBytes: 1000, totalBytes: 10_000 },
  );
  for (let at = 0; at < body.length; at += pieceBytes) request.write(body.subarray(at, at + pieceBytes));
  request.end();
  const settled = await form.then(
    (files) => files.map(({ name }) => name),
    (error: Error) => `${(error as { status?: number }).status} ${error.message}`,
  );
  return { settled, kept, begun };
}

describe("a form", () => {
  it.each([1, 7, 100_000])("is the part `request` and files, also in pieces of %i bytes", async (pieceBytes) => {
    const parts = [
      REQUEST,
      file('form-data; name="file"; filename="a b.txt"'),
      file("form-data; name=file; filename*=utf-8''%E2%82%AC.pdf", "Content-Type: application/pdf\r\n"),
      file('form-data; name="file"; filename="quo\\"te €.txt"'),
    ];
    const { settled, kept, begun } = await read(parts, pieceBytes);
    expect(settled).toEqual(["a b.txt", "€.pdf", 'quo"te €.txt']);
    expect([kept, begun]).toEqual([["content", "content", "content"], ["{}"]]);
  });

  const GOOD = 'form-data; name="file"; filename="good.txt"';
  it.each<[string, readonly string[], RegExp]>([
    ["a name with a line break", [REQUEST, file("form-data; name=\"file\"; filename*=utf-8''a%0Ab")], /line breaks/],
    [
      "a name with a line separator",
      [REQUEST, file("form-data; name=\"file\"; filename*=utf-8''a%E2%80%A8b")],
      /line breaks/,
    ],
    ["a raw line break in a name", [REQUEST, file('form-data; name="file"; filename="a\nb"')], /Content-Disposition/],
    ["an attachment", [REQUEST, file('attachment; name="file"; filename="a"')], /described as/],
    ["no disposition", [REQUEST, "Content-Type: text/plain\r\n\r\ncontent"], /Content-Disposition/],
    ["no headers", [REQUEST, "\r\ncontent"], /Content-Disposition/],
    ["headers that do not end", [REQUEST, "Content-Disposition: form-data"], /headers of a part/],
    ["two dispositions", [REQUEST, file(GOOD, `Content-Disposition: ${GOOD}\r\n`)], /one header/],
    ["no file name", [REQUEST, file('form-data; name="other"')], /one part `request`/],
    ["an empty file name", [REQUEST, file('form-data; name="file"; filename=""')], /needs a `filename`/],
    ["an empty name", [REQUEST, file('form-data; name=""; filename="a"')], /needs a `name`/],
    ["no name", [REQUEST, file('form-data; filename="a"')], /needs a `name`/],
    [
      "two names of one file",
      [REQUEST, file('form-data; name="f"; filename="a"; filename*=utf-8\'\'b')],
      /two file names/,
    ],
    ["a parameter twice", [REQUEST, file('form-data; name="f"; filename="a"; filename="b"')], /two of/],
    ["what is no parameter", [REQUEST, file('form-data; name="f"; filename="a" x')], /described as/],
    ["a quote that does not end", [REQUEST, file('form-data; name="f"; filename="a')], /described as/],
    ["a name that is not UTF-8", [REQUEST, file("form-data; name=\"f\"; filename*=utf-8''%ff")], /percent form/],
    ["another character set", [REQUEST, file("form-data; name=\"f\"; filename*=latin1''a")], /percent form/],
    ["two files of one name", [REQUEST, file(GOOD), file(GOOD)], /the same name/],
    ["a folder", [REQUEST, file('form-data; name="file"; filename="../a"')], /without a folder/],
    ["a part that is encoded", [REQUEST, file(GOOD, "Content-Transfer-Encoding: base64\r\n")], /encoded/],
    [
      "more files than may be",
      [REQUEST, ...["a", "b", "c", "d"].map((name) => file(`form-data; name="f"; filename="${name}"`))],
      /^413 /,
    ],
    ["a file before the request", [file(GOOD), REQUEST], /first part/],
    ["two requests", [REQUEST, REQUEST], /one part `request`/],
    [
      "a request that is a file",
      ['Content-Disposition: form-data; name="request"; filename="a"\r\n\r\n{}'],
      /no `filename`/,
    ],
    ["a request that is too long", [`${REQUEST}${" ".repeat(200)}`], /^413 /],
    ["a file that is too long", [REQUEST, file(GOOD) + "a".repeat(1000)], /^413 /],
    ["nothing", [], /request/],
  ])("is refused with %s, and nothing of it is left out", async (_what, parts, reason) => {
    for (const pieceBytes of [7, 100_000]) {
      const { settled } = await read(parts, pieceBytes);
      expect(settled).toMatch(reason);
      expect(settled).toMatch(/^4(?:00|13) /);
    }
  });

  it("is refused if it does not end", async () => {
    expect((await read([REQUEST, file(GOOD)], 7, "")).settled).toMatch(/^400 /);
  });

  it("keeps no file before its request is checked", async () => {
    const { kept, begun } = await read([file(GOOD), file('form-data; name="file"; filename="b"')]);
    expect([kept, begun]).toEqual([[], []]);
  });
});
