import { existsSync } from "node:fs";
import { glob, readFile } from "node:fs/promises";
import { dirname, join, relative } from "node:path";
import { describe, expect, it } from "vitest";

const ROOT = join(import.meta.dirname, "../..");

async function pages(): Promise<string[]> {
  const found = await Array.fromAsync(
    glob(["*.md", "docs/**/*.md", "policies/*.md", "examples/*/README.md"], { cwd: ROOT }),
  );
  return found.sort();
}

const read = async (page: string): Promise<string> => await readFile(join(ROOT, page), "utf8");

/** Prose, without what is quoted from files and terminals. */
const withoutBlocks = (text: string): string => text.replace(/^```[\s\S]*?^```$/gm, "").replace(/`[^`\n]*`/g, "");

/** As GitHub makes it of a heading: lower case, words joined, and nothing else. */
function anchorsOf(text: string): Set<string> {
  const headings = [...text.matchAll(/^#+ (.+)$/gm)].map(([, heading = ""]) => heading);
  return new Set(
    headings.map((heading) =>
      heading
        .toLowerCase()
        .replace(/[^\p{L}\p{N}\s_-]/gu, "")
        .replace(/\s/g, "-"),
    ),
  );
}

async function isThere(page: string, target: string): Promise<boolean> {
  const [path = "", anchor] = target.split("#");
  const file = path === "" ? page : relative(ROOT, join(ROOT, dirname(page), path));
  if (!existsSync(join(ROOT, file))) return false;
  return anchor === undefined || anchorsOf(await read(file)).has(anchor);
}

describe("the pages", () => {
  it("link to files and headings that are there", async () => {
    const broken: string[] = [];
    for (const page of await pages()) {
      const targets = [...withoutBlocks(await read(page)).matchAll(/\]\(([^)\s]+)\)/g)].map(
        ([, target = ""]) => target,
      );
      for (const target of targets)
        if (!target.startsWith("https://") && !(await isThere(page, target))) broken.push(`${page}: ${target}`);
    }
    expect(broken).toEqual([]);
  });

  it("notice a file or a heading that is not there", async () => {
    expect(await isThere("README.md", "docs/formats/project.md#corralyaml")).toBe(true);
    expect(await isThere("README.md", "docs/formats.md#nowhere")).toBe(false);
    expect(await isThere("README.md", "docs/nowhere.md")).toBe(false);
  });

  it("name sources, tests and policies that are there", async () => {
    const missing: string[] = [];
    for (const page of await pages()) {
      const named = [...(await read(page)).matchAll(/`((?:src|test|policies|images|scripts|bench)\/[\w./-]+)`/g)];
      for (const [, path = ""] of named) if (!existsSync(join(ROOT, path))) missing.push(`${page}: ${path}`);
    }
    expect(missing).toEqual([]);
  });

  it("are all in the index", async () => {
    const index = await read("docs/README.md");
    // The reference has an index of its own.
    const formats = await read("docs/formats.md");
    const isIndexed = (page: string): boolean =>
      page.startsWith("docs/formats/")
        ? formats.includes(`](${page.replace("docs/", "")})`)
        : index.includes(`](${page.startsWith("docs/") ? page.slice("docs/".length) : `../${page}`})`);
    expect((await pages()).filter((page) => page !== "docs/README.md" && !isIndexed(page))).toEqual([]);
  });
});

describe("docs/security.md", () => {
  it("names a test for each threat", async () => {
    const page = await read("docs/security.md");
    const table = page.slice(page.indexOf("| threat"), page.indexOf("## Attacks on your own machine"));
    const threats = table
      .split("\n")
      .filter((line) => line.startsWith("|"))
      .slice(2);
    expect(threats.length).toBeGreaterThan(25);
    expect(threats.filter((line) => !/`test\/[\w./-]+`/.test(line.split("|").at(-2) ?? ""))).toEqual([]);
  });
});
