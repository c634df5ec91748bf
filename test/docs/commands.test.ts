import { glob, readFile } from "node:fs/promises";
import { join } from "node:path";
import { beforeAll, describe, expect, it } from "vitest";
import { main } from "../../src/cli/program.ts";
import type { Terminal } from "../../src/cli/terminal/terminal.ts";

const ROOT = join(import.meta.dirname, "../..");

async function help(...verb: string[]): Promise<string> {
  let text = "";
  const stream = { write: (piece: string) => (text += piece) };
  const terminal = { env: {}, cwd: "/", stdout: stream, stderr: stream } as unknown as Terminal;
  expect(await main([...verb, "--help"], terminal)).toBe(0);
  return text;
}

const verbsIn = (text: string): string[] =>
  [...text.slice(text.indexOf("Commands:")).matchAll(/^ {2}([a-z]+)/gm)]
    .map(([, name = ""]) => name)
    .filter((name) => name !== "help");

/** With that of the verbs below it: `serve token` has some. */
async function helpBelow(...verb: string[]): Promise<string[]> {
  const own = await help(...verb);
  const below = own.includes("\nCommands:") ? verbsIn(own) : [];
  return [own, ...(await Promise.all(below.map((name) => help(...verb, name))))];
}

/** The help of each verb, with that of the verbs below it; and these. */
const verbs = new Map<string, { readonly text: string; readonly below: readonly string[] }>();

beforeAll(async () => {
  for (const verb of verbsIn(await help())) {
    const own = await help(verb);
    const below = own.includes("\nCommands:") ? verbsIn(own) : [];
    const texts = (await Promise.all(below.map((name) => helpBelow(verb, name)))).flat();
    verbs.set(verb, { text: [own, ...texts].join("\n"), below });
  }
});

/** What a page says of the command line: in code, from `corral VERB` to the end of the line. */
function quotedIn(page: string): string[] {
  const blocks = [...page.matchAll(/^```(?:sh|yaml|json)\n([\s\S]*?)^```$/gm)].flatMap(([, text = ""]) =>
    text.split("\n"),
  );
  const spans = [...page.replace(/^```[\s\S]*?^```$/gm, "").matchAll(/`([^`\n]+)`/g)].map(([, text = ""]) => text);
  return [...blocks, ...spans].flatMap((text) => /(?<![\w/.-])corral [a-z].*/.exec(text.replaceAll("\\|", "|")) ?? []);
}

/** What the program does not have of such a line. */
function unknownIn(line: string): string[] {
  const [, verb = "", rest = ""] = /^corral ([a-z]+)(.*?)(?: #.*| > .*)?$/.exec(line) ?? [];
  const found = verbs.get(verb);
  if (found === undefined) return [`corral ${verb}`];
  const below = found.below.length === 0 ? [] : rest.split("|").map((part) => /^[^\w-]*([a-z]+)/.exec(part)?.[1]);
  const wrong = below.filter((name) => name !== undefined && !found.below.includes(name));
  // What follows `--` is the worker's own.
  const options = [...(rest.split(" -- ")[0] ?? "").matchAll(/(?<=[\s[])--[a-z-]+/g)].map(([option]) => option);
  return [
    ...wrong.map((name) => `corral ${verb} ${name}`),
    ...options.filter((option) => !found.text.includes(option)),
  ];
}

describe("the pages", () => {
  it("quote commands and options that the program has", async () => {
    const pages = await Array.fromAsync(
      glob(["*.md", "docs/**/*.md", "policies/*.md", "examples/*/README.md"], { cwd: ROOT }),
    );
    let lines = 0;
    const unknown: string[] = [];
    for (const page of pages) {
      for (const line of quotedIn(await readFile(join(ROOT, page), "utf8"))) {
        lines += 1;
        unknown.push(...unknownIn(line).map((what) => `${page}: ${what}`));
      }
    }
    expect(lines).toBeGreaterThan(40);
    expect(unknown).toEqual([]);
  });

  it.each([
    ["corral rnu w", ["corral rnu"]],
    ["corral run w --jsn", ["--jsn"]],
    ["corral fleet ls | shw ID", ["corral fleet shw"]],
  ])("would not pass with `%s`", (line, unknown) => {
    expect(unknownIn(line)).toEqual(unknown);
  });
});

describe("the README", () => {
  it("has every command", async () => {
    const readme = await readFile(join(ROOT, "README.md"), "utf8");
    const missing = [...verbs].flatMap(([verb]) => (readme.includes(`\`corral ${verb}`) ? [] : [verb]));
    expect(missing).toEqual([]);
  });

  it("say the same of fields, manifests and approvals as the help", async () => {
    const spaced = async (...verb: string[]) => (await help(...verb)).replace(/\s+/g, " ");
    const fleets = (await readFile(join(ROOT, "docs/fleets.md"), "utf8")).replace(/\s+/g, " ");
    const [, fields = ""] = /replaced by the item's fields: ([^.]*) of a file/.exec(fleets) ?? [];
    const named = [...fields.matchAll(/`(\w+)`/g)].map(([, name = ""]) => name);
    const [, inHelp = ""] = /is a field of the item: ([^.]*) of a file/.exec(await spaced("map")) ?? [];
    expect(named).toContain("relative");
    expect(inHelp.split(/, | and /).toSorted()).toEqual(named.toSorted());
    for (const text of [fleets, await spaced("map")]) expect(text).toContain("--format paths");
    expect(await spaced("mcp")).toContain("The project's rules decide first");
  });

  it("say that what shows something takes --json, and it does", async () => {
    const shows =
      "explain check audit ps doctor tool fleet,ls fleet,show fleet,results changes,ls changes,show changes,diff";
    for (const verb of `${shows} grants,ls transcripts,ls transcripts,show images,ls`.split(" ")) {
      expect(await help(...verb.split(",")), verb).toMatch(/^ {2}--json /m);
    }
  });
});
