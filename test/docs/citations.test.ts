import { existsSync } from "node:fs";
import { readdir, readFile } from "node:fs/promises";
import { fileURLToPath } from "node:url";
import { describe, expect, it } from "vitest";

const ROOT = new URL("../../", import.meta.url);
const FOLDERS = ["src", "policies", "images", "scripts", "bench"];
const MAX_TEXT_BYTES = 1_000_000;

async function textsBelow(folders: readonly string[]): Promise<[path: string, text: string][]> {
  const paths = await Promise.all(
    folders.map(async (folder) => {
      const entries = await readdir(new URL(`${folder}/`, ROOT), { recursive: true, withFileTypes: true });
      const files = entries.filter((entry) => entry.isFile() && !entry.parentPath.includes("node_modules"));
      return files.map((entry) => `${entry.parentPath}/${entry.name}`.slice(fileURLToPath(ROOT).length));
    }),
  );
  const texts = paths.flat().map(async (path): Promise<[string, string]> => {
    return [path, await readFile(new URL(path, ROOT), "utf8")];
  });
  return (await Promise.all(texts)).filter(([, text]) => text.length < MAX_TEXT_BYTES);
}

const FACT = /\bfact: ?([a-z0-9-]+)/g;
const PAGE = /(?<![\w/.-])docs\/[\w-]+\.md(?:, "([^"]+)")?/g;

/** What a text cites that a reader of the repository cannot find. */
function missingIn(text: string, facts: ReadonlySet<string>, headings: ReadonlySet<string>): string[] {
  // A seed of random numbers is an option or a name; a numbered one is a source that the repository does not have.
  const foreign = text.match(/\bdesigns?\b|(?<!--)\bseeds? (?=#?\d)/gi)?.map((word) => word.trim()) ?? [];
  const unknown = [...text.matchAll(FACT)].filter(([, name = ""]) => !facts.has(name)).map(([cited]) => cited);
  const pages = [...text.matchAll(PAGE)].filter(([cited, heading]) => {
    return !existsSync(new URL(cited.split(",")[0] ?? "", ROOT)) || (heading !== undefined && !headings.has(heading));
  });
  return [...foreign, ...unknown, ...pages.map(([cited]) => cited)];
}

async function pages(): Promise<string> {
  const names = (await readdir(new URL("docs/", ROOT))).filter((name) => name.endsWith(".md"));
  return (await Promise.all(names.map((name) => readFile(new URL(`docs/${name}`, ROOT), "utf8")))).join("\n");
}

async function known(): Promise<{ facts: Set<string>; headings: Set<string> }> {
  const text = await pages();
  const facts = [...text.matchAll(/\*\*fact: ([a-z0-9-]+)\*\*/g)].map(([, name = ""]) => name);
  const headings = [...text.matchAll(/^#+ (.+)$/gm)].map(([, heading = ""]) => heading);
  return { facts: new Set(facts), headings: new Set(headings) };
}

describe("what code cites", () => {
  it("is in the repository", async () => {
    const { facts, headings } = await known();
    const texts = await textsBelow(FOLDERS);
    expect(texts.length).toBeGreaterThan(50);
    expect(facts.size).toBeGreaterThan(5);
    const missing = texts.flatMap(([path, text]) =>
      missingIn(text, facts, headings).map((cited) => `${path}: ${cited}`),
    );
    expect(missing, "state the reason, or cite a page below docs/ or a fact of docs/facts.md").toEqual([]);
  });

  it.each([
    ["a document that is elsewhere", "// as the design says", ["design"]],
    ["a numbered source", "/** Limits (seed 3). */", ["seed"]],
    ["a fact that no page has", "# fact: moon-is-cheese", ["fact: moon-is-cheese"]],
    ["a page that is not there", "// see docs/nowhere.md", ["docs/nowhere.md"]],
    ["a heading that no page has", '// docs/formats.md, "Cheese"', ['docs/formats.md, "Cheese"']],
  ])("is missed if it is %s", async (_, text, missing) => {
    const { facts, headings } = await known();
    expect(missingIn(text, facts, headings)).toEqual(missing);
  });

  it.each([
    "// docs/facts.md, fact: no-exec-kill",
    '// docs/architecture.md, "Addressing"',
    "/srv/docs/a.md",
    "`--seed 3`: the seed of random numbers",
  ])("may be `%s`", async (text) => {
    const { facts, headings } = await known();
    expect(missingIn(text, facts, headings)).toEqual([]);
  });
});

describe("docs/facts.md", () => {
  it("is beside an architecture of at most 350 lines", async () => {
    const page = await readFile(new URL("docs/architecture.md", ROOT), "utf8");
    expect(page.split("\n").length - 1).toBeLessThanOrEqual(350);
  });

  it("has no fact that nothing cites", async () => {
    const { facts } = await known();
    const cited = new Set(
      (await textsBelow(FOLDERS)).flatMap(([, text]) => [...text.matchAll(FACT)].map(([, name = ""]) => name)),
    );
    const elsewhere = (await pages()).matchAll(/\(fact: ([a-z0-9-]+)\)/g);
    for (const [, name = ""] of elsewhere) cited.add(name);
    expect([...facts].filter((name) => !cited.has(name))).toEqual([]);
  });
});
