import { glob, readFile } from "node:fs/promises";
import { join } from "node:path";
import { describe, expect, it } from "vitest";
import { examplesOf, verbs } from "./help-examples.ts";
import { corralLinesOf, faultOf } from "./read-command.ts";

const ROOT = join(import.meta.dirname, "../..");
const PAGES = ["*.md", "docs/**/*.md", "policies/*.md", "examples/*/README.md"];

describe("every example", () => {
  it("of a page is a command line that the program understands", async () => {
    const faults: string[] = [];
    let count = 0;
    for await (const page of glob(PAGES, { cwd: ROOT })) {
      const text = await readFile(join(ROOT, page), "utf8");
      for (const [, script = ""] of text.matchAll(/^```sh\n([\s\S]*?)^```$/gm)) {
        const lines = corralLinesOf(script);
        const mentioned = script.match(/^(?:\w+=\S+ )*(?:npx )?corral /gm)?.length ?? 0;
        if (lines.length < mentioned) faults.push(`${page}: cannot be read: ${script}`);
        for (const words of lines) {
          count += 1;
          const fault = await faultOf(words);
          if (fault !== null) faults.push(`${page}: corral ${words.join(" ")}: ${fault}`);
        }
      }
    }
    expect(count).toBeGreaterThan(60);
    expect(faults).toEqual([]);
  });

  it("of a help is one too, and is an example of that command", async () => {
    const faults: string[] = [];
    let count = 0;
    for (const verb of await verbs()) {
      const text = await examplesOf(verb);
      const lines = corralLinesOf(text);
      if (text !== "" && lines.length < (text.match(/^corral /gm)?.length ?? 0)) faults.push(`cannot be read: ${text}`);
      for (const words of lines) {
        count += 1;
        const fault = words.join(" ").startsWith(verb.join(" ")) ? await faultOf(words) : `is in the help of ${verb}`;
        if (fault !== null) faults.push(`corral ${words.join(" ")}: ${fault}`);
      }
    }
    expect(count).toBeGreaterThan(15);
    expect(faults).toEqual([]);
  });

  it.each([
    ["corral run w --jsn", "unknown option '--jsn'"],
    ["corral rnu w", "unknown command 'rnu'"],
    ["corral fleet show", "missing required argument 'id'"],
    ["corral fleet ls one two", "too many arguments"],
    ["corral init documents desk more", "too many arguments"],
    ["corral map w --reuse clean", "Allowed choices are fresh, scrubbed"],
    ["corral fleet", "Usage: corral fleet"],
  ])("would be found if it were `%s`", async (line, fault) => {
    const [words = []] = corralLinesOf(line);
    expect(await faultOf(words)).toContain(fault);
  });

  it("is found wherever it is in a text for sh", () => {
    const text =
      "# first\nA=1 corral run a -- -x 'b c' \\\n  d > out; npx corral fleet show \"$ID\" | wc\nnpm run corral\n";
    expect(corralLinesOf(text)).toEqual([
      ["run", "a", "--", "-x", "b c", "d"],
      ["fleet", "show", "word"],
    ]);
  });
});
