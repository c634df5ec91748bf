import { spawn } from "node:child_process";
import { createWriteStream } from "node:fs";
import { join } from "node:path";
import { Readable } from "node:stream";
import { pipeline } from "node:stream/promises";
import { describe, expect, it } from "vitest";
import { projectFolder } from "../../declarations/project-folder.ts";
import { AT_LENGTH } from "../../tiers/at-length.ts";

/** Long, so that fewer lines are as much text. */
const NAME = `${"report-of-the-day-".repeat(12)}.pdf`;
const DIR = `documents/${"of-this-year/".repeat(18)}`;
/** Far less than the text of all lines, not to speak of what is made of it. */
const HEAP_MB = 32;

const COUNT = `
  const { readItems } = await import(process.argv[1]);
  const { itemFiller } = await import(process.argv[2]);
  const fill = itemFiller({ attach: ["{path}"], allowWrite: ["/text/{stem}"], input: { lang: "{lang}" } }, { manifestDir: "/in" });
  let seen = 0, last;
  const reading = { cwd: "/", signal: new AbortController().signal, leftOut() {} };
  for await (const item of readItems({ kind: "manifest", path: process.argv[3] }, reading)) { seen += 1; last = fill(item); }
  console.log(JSON.stringify({ seen, last }));
`;

describe("a manifest of very many lines", () => {
  it.each([
    ["items.jsonl", AT_LENGTH ? 1_000_000 : 30_000, "", (n: number) => `{"path":"${DIR}${n}/${NAME}","lang":"de"}\n`],
    ["items.csv", AT_LENGTH ? 50_000 : 30_000, "path,lang\n", (n: number) => `${DIR}${n}/${NAME},de\n`],
  ])(
    "is read and filled in a heap that could not hold it: %s, %i lines",
    async (name, lines, head, lineOf) => {
      const dir = await projectFolder({});
      const path = join(dir, name);
      await pipeline(Readable.from(texts(lines, head, lineOf)), createWriteStream(path));
      const { seen, last } = JSON.parse(await counted(path)) as {
        seen: number;
        last: { index: number; input: unknown };
      };
      expect(seen).toBe(lines);
      expect(last).toMatchObject({
        index: lines - 1,
        input: { lang: "de" },
        attachments: [{ path: `/in/${DIR}${lines - 1}/${NAME}`, name: NAME }],
      });
    },
    180_000,
  );
});

function* texts(lines: number, head: string, lineOf: (n: number) => string): Generator<string> {
  yield head;
  for (let n = 0; n < lines; n += 1000) yield Array.from({ length: 1000 }, (_, each) => lineOf(n + each)).join("");
}

function counted(path: string): Promise<string> {
  const modules = ["read-items", "item-template"].map(
    (name) => new URL(`../../../src/fleet/items/${name}.ts`, import.meta.url).href,
  );
  const args = [`--max-old-space-size=${HEAP_MB}`, "--input-type=module", "-e", COUNT, ...modules, path];
  const child = spawn(process.execPath, args, { stdio: ["ignore", "pipe", "pipe"] });
  let [out, err] = ["", ""];
  child.stdout.on("data", (text) => (out += text));
  child.stderr.on("data", (text) => (err += text));
  return new Promise((resolve, reject) => {
    child.on("error", reject);
    child.on("close", (code) => (code === 0 ? resolve(out) : reject(new Error(`exit ${code}: ${err.slice(-2000)}`))));
  });
}
