import { readdir, readFile, writeFile } from "node:fs/promises";
import { join } from "node:path";
import { gzipSync } from "node:zlib";
import { afterAll, beforeAll, describe, expect, it } from "vitest";
import { type CliProject, cliProject } from "./cli-project.ts";

const ROOT = join(import.meta.dirname, "../..");
const MAIL = "From: a@example.org\nTo: b@example.org\nSubject: Invoice 4711\nMIME-Version: 1.0\n";
const ATTACHED = `Content-Type: multipart/mixed; boundary=x\n\n--x\nContent-Type: text/plain\n\nSee below.\n--x
Content-Type: application/octet-stream\nContent-Disposition: attachment; filename="../../.git/hooks/run me"\n
attached words\n--x--\n`;

/** OpenDocument in one file, with a paragraph beside its body. */
const FLAT = `<office:document xmlns:office="urn:oasis:names:tc:opendocument:xmlns:office:1.0" xmlns:text="urn:oasis:names:tc:opendocument:xmlns:text:1.0"
 office:mimetype="application/vnd.oasis.opendocument.text"><office:master-styles><text:p>a header</text:p></office:master-styles><office:body><office:text><text:p>Flat words</text:p></office:text></office:body></office:document>`;

/** An archive of 7z with the password `right`, in which even the names are encrypted. */
const LOCKED =
  "N3q8ryccAAQzWSMfkAAAAAAAAAAuAAAAAAAAANUhQLmShrNbRIiXeNKvBGUlX17X0N4XcTxoqHbzx+UphAc+sKxQS6w1Nd1oNjVa0nN3mDpNlYU/TMQ6i3WdE7bAyxLje/BcLjy1fLwfPlJaTNOap64FRpkTeculTIPMlvjmsr2i4bsUzeVHPWK/Wm6tFziZHIbByhyw7cjoKSMo4niVZv5smA0AWHZJ2yJlj9sxLgwXBiABCXAABwsBAAEkBvEHARJTD0kbQ/WHb3PkDUGprXwyBJoMYgoBOaMTMQAA";

let folder: CliProject;

beforeAll(async () => {
  folder = await cliProject({
    yaml: null,
    workers: {},
    files: {
      "in/sub/report.html": "<!doctype html><html><body><p>Words of a page</p></body></html>",
      "in/report.html": "not a page, whatever its name says\n",
      "in/letter.eml": MAIL + ATTACHED,
      "in/broken.docx": "PK\u0003\u0004 this is no archive",
      "in/only-header.pdf": "%PDF-1.4\n",
      "in/new\nline": "a name of two lines\n",
      "in/flat": FLAT,
      "in/book": "<FictionBook><description><p>no</p></description><body><v>A verse</v></body></FictionBook>",
      "in/cut.book": "<FictionBook><body><p>never closed</body></FictionBook>",
      "in/page.ps": "%!PS-Adobe-3.0\n(shown) show showpage\n",
      "in/lib.a": `!<arch>\n${"member/".padEnd(16)}${"0".padEnd(12)}${"0".padEnd(6)}${"0".padEnd(6)}${"644".padEnd(8)}${"10".padEnd(10)}\x60\nar content`,
    },
  });
  const at = (name: string) => join(folder.dir, "in", name);
  await writeFile(at("hello.pdf"), await readFile(join(ROOT, "templates/convert/inbox/hello.pdf")));
  await writeFile(at("bomb.gz"), gzipSync(Buffer.alloc(40 * 1024 ** 2)));
  await writeFile(
    Buffer.concat([Buffer.from(`${folder.dir}/in/caf`), Buffer.from([0xe9])]),
    "\u001b]0;x\u0007bytes in a name\n",
  );
  await writeFile(join(folder.dir, "words"), "wrong\nright\n");
  await writeFile(at("locked.7z"), Buffer.from(LOCKED, "base64"));
});
afterAll(async () => {
  await folder[Symbol.asyncDispose]();
});

const words = async (path: string): Promise<string> => await readFile(join(folder.dir, path), "utf8");

interface Line {
  readonly file: string;
  readonly folder: string;
  readonly verdict: string;
  readonly reason: string | null;
  readonly type: string;
  readonly cached: boolean;
  readonly pages: number | null;
}

const linesOf = (text: string): Line[] =>
  text
    .trimEnd()
    .split("\n")
    .map((line) => JSON.parse(line));

describe("corral convert", () => {
  const TEXT = ["convert", "--to", "text", "in", "--out", "out", "--disk", "64m", "--password-file", "words"];

  it("makes text of every file by what it is, and says of each what became of it", async () => {
    const { status, stdout, stderr } = await folder.corral([...TEXT, "--json"]);
    expect(status, stderr).toBe(1);
    const lines = linesOf(await words("out/results.jsonl"));
    expect(lines.map(({ file, verdict, reason, type }) => [file, type, reason ?? verdict])).toEqual([
      ["bomb.gz", "gzip", "bomb"],
      ["book", "fb2", "done"],
      ["broken.docx", "zip", "damaged"],
      ["caf\ufffd", "text", "done"],
      ["cut.book", "fb2", "damaged"],
      ["flat", "fodt", "done"],
      ["hello.pdf", "pdf", "done"],
      ["letter.eml", "eml", "done"],
      ["lib.a", "ar", "done"],
      ["locked.7z", "7z", "done"],
      ["new\nline", "text", "done"],
      ["only-header.pdf", "pdf", "damaged"],
      ["page.ps", "PostScript", "unknown type"],
      ["report.html", "text", "done"],
      ["sub/report.html", "html", "done"],
    ]);
    const byFile = (all: readonly Line[]) => all.map(({ file, verdict }) => `${file} ${verdict}`).toSorted();
    expect(byFile(linesOf(stdout))).toEqual(byFile(lines));
    expect(stderr).toContain("corral: bomb.gz not possible: bomb: it unpacks to more bytes than its limit\n");
    expect(stderr).not.toContain("exit code");
    expect(stderr).toContain(
      "10 files done, 5 not possible (3 damaged, 1 bomb, 1 unknown type); out/report.html has each",
    );
    expect((await readdir(join(folder.dir, "out"))).toSorted()).toEqual([
      "book",
      "caf%E9",
      "flat",
      "hello.pdf",
      "letter.eml",
      "lib.a",
      "locked.7z",
      "new%0Aline",
      "report%2Ehtml",
      "report.html",
      "results.jsonl",
      "sub",
    ]);
    expect(await words("out/hello.pdf/text.txt")).toContain("Hello from a PDF.");
    expect(await words("out/letter.eml/text.txt")).toMatch(/Invoice 4711[\s\S]*See below\.[\s\S]*attached words/);
    expect(await words("out/flat/text.txt")).toBe("Flat words\n");
    expect(await words("out/book/text.txt")).toBe("A verse\n");
    expect(await words("out/lib.a/text.txt")).toContain("ar content");
    expect(await words("out/locked.7z/text.txt")).toContain("locked words");
    expect(await words("out/sub/report.html/text.txt")).toContain("Words of a page");
    expect(await words("out/caf%E9/text.txt"), "nothing that a terminal obeys").toBe("]0;xbytes in a name\n");
    expect(await words("out/report.html")).toContain('<a href="./new%250Aline/">');
    // Nothing of a file from which nothing could be made waits anywhere.
    expect((await folder.corral(["changes", "ls"])).stdout).not.toContain("bomb");
  });

  it("runs again only what is new, and with --retry what was not possible", async () => {
    await writeFile(join(folder.dir, "in/later"), "later\n");
    const ran = async (more: readonly string[]) => {
      const { status, stderr } = await folder.corral([...TEXT, ...more]);
      expect(status, stderr).toBe(1);
      const lines = linesOf(await words("out/results.jsonl"));
      expect(lines.map(({ reason }) => reason).filter((reason) => reason !== null)).toHaveLength(5);
      return lines.filter(({ cached }) => !cached).map(({ file }) => file);
    };
    expect(await ran([])).toEqual(["later"]);
    expect((await ran(["--retry"])).toSorted()).toEqual([
      "bomb.gz",
      "broken.docx",
      "cut.book",
      "only-header.pdf",
      "page.ps",
    ]);
  });

  it("builds a PDF of pixels, of what another container has read", async () => {
    const { status, stderr } = await folder.corral([
      "convert",
      "--to",
      "safe-pdf",
      "in/hello.pdf",
      "in/only-header.pdf",
      "--out",
      "safe",
    ]);
    expect(status, stderr).toBe(1);
    expect(linesOf(await words("safe/results.jsonl"))).toMatchObject([
      { verdict: "done", type: "pdf", pages: 1 },
      { verdict: "not possible", reason: "damaged" },
    ]);
    expect(await readdir(join(folder.dir, "safe/hello.pdf"))).toEqual(["document.pdf"]);
    const made = await readFile(join(folder.dir, "safe/hello.pdf/document.pdf"), "latin1");
    expect(made.match(/\/(Type|Subtype) \/\w+/g)?.toSorted()).toEqual([
      "/Subtype /Image",
      "/Type /Catalog",
      "/Type /Page",
      "/Type /Pages",
      "/Type /XObject",
    ]);
  });

  it("takes nothing but pixels from the container that has read a file", async () => {
    const program = `${join(ROOT, "templates/convert/program")}=program`;
    const attached = `${join(import.meta.dirname, "hostile-pictures.py")}=test.py`;
    const run = [
      "run",
      "--image",
      "corral/documents",
      "--ro",
      program,
      "--attach",
      attached,
      "--",
      "python3",
      "-I",
      "-S",
    ];
    const { stdout, stderr } = await folder.corral([...run, "/attachments/test.py"]);
    expect(JSON.parse(stdout), stderr).toEqual({
      plain: "its pixels",
      "with words around them": "its pixels",
      "a row more": "refused",
      "a row less": "refused",
      "a filter that is none": "refused",
      "a palette": "refused",
      "16 bits": "refused",
      interlaced: "refused",
      "more than it says": "refused",
      "no picture": "refused",
      "a link": "refused",
      "a side that is too long": "refused",
    });
  });

  it("unpacks a mail to names that lead nowhere", async () => {
    // An archive with nothing in it: of an empty result nothing is called done.
    await writeFile(join(folder.dir, "empty.zip"), Buffer.concat([Buffer.from("PK\u0005\u0006"), Buffer.alloc(18)]));
    const sources = ["in/letter.eml", "empty.zip"];
    const { status, stderr } = await folder.corral(["convert", "--to", "parts", ...sources, "--out", "parts"]);
    expect(status, stderr).toBe(1);
    expect(linesOf(await words("parts/results.jsonl")).map(({ file, reason }) => [file, reason])).toEqual([
      ["letter.eml", null],
      ["empty.zip", "no parts"],
    ]);
    const found = await readdir(join(folder.dir, "parts/letter.eml/parts"));
    expect(found.toSorted()).toEqual(["%2E.%5C..%5C.git%5Chooks%5Crun me", "message.txt"]);
  });

  it.each([
    [["in", "--out", "out"], "say what to make: --to text"],
    [["--to", "text", "--out", "out"], "name a folder or files to convert"],
    [["--to", "text", "in"], "name the folder of the results: --out DIR"],
    [["--to", "text", "in", "--out", "in"], "holds what is to be converted"],
    [["--to", "text", "missing", "--out", "out"], "missing: there is no such file or folder"],
    [["--to", "text", "in", "--out", "out", "--memory", "much"], "--memory must be a size"],
    [["--to", "text", "in", "--out", "out", "--ocr", "../eng"], "--ocr must be a language"],
  ])("says what is wrong with %j", async (args, message) => {
    expect(await folder.corral(["convert", ...args])).toMatchObject({
      status: 2,
      stderr: expect.stringContaining(message),
    });
  });

  it("writes the project that does all this, which runs and is without mistakes", async () => {
    expect(await folder.corral(["convert", "--init", "own"])).toMatchObject({ status: 0 });
    const ran = await folder.corral(["map", "--fleet", "text"], { cwd: "own" });
    expect(ran.status, ran.stderr).toBe(0);
    expect(await words("own/out/hello.pdf/text.txt")).toContain("Hello from a PDF.");
    expect(await folder.corral(["check"], { cwd: "own" })).toMatchObject({ status: 0 });
  });
});
