import { glob, readFile } from "node:fs/promises";
import { join } from "node:path";
import { describe, expect, it } from "vitest";

const ROOT = join(import.meta.dirname, "../..");

/** Words in capitals of the sources that are no codes of errors: of the system, of protocols, of the Engine, of variables. */
const NO_CODES =
  /^(E[A-Z]+|SIG[A-Z]+|(ERR|HPE|SCMP|CSV|UV|CAP)_\w+|[A-Z]+_(HOST|API_KEY|ENV|COMMAND)|ABORT_ERR|[A-Z]+_PROXY)$/;
/** What this matches as well. */
const CODES_ALL_THE_SAME: ReadonlySet<string> = new Set(["EDIT", "SIGNALED"]);

/** A code of two words is unmistakable. One of a single word is known by its place: a union, a field, or what makes an error. */
const LITERAL = /"([A-Z]+(?:_[A-Z]+)+)"/g;
const SINGLE = /(?:\bcode: |^ +\| |\b\w*(?:error|Error|Refusal|refusal|failed|Answer)\(|"lost", )"([A-Z]+)"/gm;

const missingFrom = (some: ReadonlySet<string>, all: ReadonlySet<string>): string[] =>
  [...all].filter((one) => !some.has(one)).sort();

const isCode = (word: string): boolean => CODES_ALL_THE_SAME.has(word) || !NO_CODES.test(word);

async function codesOfSources(): Promise<Set<string>> {
  const codes = new Set<string>();
  for await (const file of glob("src/**/*.ts", { cwd: ROOT })) {
    const text = await readFile(join(ROOT, file), "utf8");
    for (const expression of [LITERAL, SINGLE])
      for (const [, word = ""] of text.matchAll(expression)) if (isCode(word)) codes.add(word);
  }
  return codes;
}

describe("docs/troubleshooting.md", () => {
  it("has a line for each code that the sources have, and for no other", async () => {
    const page = await readFile(join(ROOT, "docs/troubleshooting.md"), "utf8");
    const cells = [...page.matchAll(/^\| (`[A-Z][^|]*?) +\|/gm)].map(([, cell = ""]) => cell);
    const listed = new Set(cells.flatMap((cell) => [...cell.matchAll(/`([A-Z_]+)`/g)].map(([, code = ""]) => code)));
    const known = await codesOfSources();
    expect(known.size).toBeGreaterThan(120);
    for (const [code] of [["UNKNOWN_WORKER"], ["EDIT"], ["LOST"], ["HOST_TROUBLE"], ["GIT_BUSY"]])
      expect(known).toContain(code);
    expect({ missing: missingFrom(listed, known), unknown: missingFrom(known, listed) }).toEqual({
      missing: [],
      unknown: [],
    });
  });

  it("quotes messages of the program", async () => {
    const page = await readFile(join(ROOT, "docs/troubleshooting.md"), "utf8");
    const table = page.slice(page.indexOf("## Symptoms"), page.indexOf("## Errors of commands"));
    const sources: string[] = [];
    for await (const file of glob("src/**/*.ts", { cwd: ROOT })) sources.push(await readFile(join(ROOT, file), "utf8"));
    const all = sources.join("\n");
    const quoted = [...table.matchAll(/^\| (`.*?) +\|/gm)].flatMap(([, cell = ""]) =>
      [...cell.matchAll(/`([^`]+)`/g)].map(([, text = ""]) => text),
    );
    expect(quoted.length).toBeGreaterThan(12);
    // What the Engine and the kernel say is not in the sources.
    const own = quoted.filter((text) => !/^(Killed|Permission denied|ENOSPC: .*|error while mounting .*)$/.test(text));
    const constants = own.flatMap((text) => text.split(/…|'[^']*'|\d+ MiB/)).map((part) => part.trim());
    expect(constants.filter((part) => part.length > 3 && !all.includes(part))).toEqual([]);
  });
});
