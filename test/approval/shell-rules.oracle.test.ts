// biome-ignore-all lint/suspicious/noTemplateCurlyInString: the strings are shell commands.
import { execFile } from "node:child_process";
import { mkdtemp, rm, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { promisify } from "node:util";
import fc from "fast-check";
import { expect, it, onTestFinished } from "vitest";
import { hidesCommand } from "../../src/approval/shell-rules/hiding.ts";
import { shellParts } from "../../src/approval/shell-rules/parts.ts";

/*
 * The parser is not ours, and a command that it does not see is a command that nobody agreed to. So real shells run
 * command lines of random shape, whose commands do not exist, and what they complain of is compared with what was seen.
 */

const LINES = 120;

it.each(["bash", "dash"])("%s runs no command that is not among the parts", async (shell) => {
  const lines = fc.sample(line, { numRuns: LINES, seed: 7 }).map(numbered);
  let compared = 0;
  for (const [index, missing] of (await runEach(shell, lines)).entries()) {
    const text = lines[index] ?? "";
    const parts = shellParts(text);
    if (parts.some((part) => part.kind === "opaque" || (part.kind === "command" && hidesCommand(part.words)))) continue;
    const seen = parts.flatMap((part) => (part.kind === "command" ? [part.words[0]] : []));
    for (const name of missing) expect(seen, text).toContain(name);
    compared += missing.length;
  }
  expect(compared).toBeGreaterThan(LINES / 2);
});

/** The names that the shell could not find, for each line. It finds nothing: there is no PATH. */
async function runEach(shell: string, lines: readonly string[]): Promise<string[][]> {
  const dir = await mkdtemp(join(tmpdir(), "corral-shell-"));
  onTestFinished(() => rm(dir, { recursive: true, force: true }));
  await Promise.all(lines.map((text, index) => writeFile(join(dir, `${index}.sh`), text)));
  // The substitution ends when all that a line left in the background has ended, so no line has another's complaints.
  const one = 'out=$(env -i PATH=/nonexistent "$1" "./$n.sh" 2>&1 </dev/null); printf "%%%s\\n%s\\n" "$n" "$out"';
  const each = `for n in $(seq 0 "$2"); do ${one}; done`;
  const where = (await run("sh", ["-c", 'command -v "$1"', "sh", shell])).stdout.trim();
  const { stdout } = await run("sh", ["-c", each, "sh", where, String(lines.length - 1)], { cwd: dir });
  return stdout
    .split(/^%\d+\n/m)
    .slice(1)
    .map((output) => [...output.matchAll(/: (w\d+): (?:command )?not found$/gm)].map((match) => match[1] ?? ""));
}

const run = promisify(execFile);

const word = fc.constantFrom(
  "$(w)",
  "`w`",
  '"$(w)"',
  '"a `w` b"',
  "${x:-$(w)}",
  "\"${x:-$(w '}')}\"",
  "'; w'",
  '"; w"',
  "\\;w",
  "a#b",
  "#w",
  "''",
  "\\'",
  "'\\'",
  "$((1 + 2))",
  "{a,$(w)}",
  "[$(w)]",
  "~",
  "*",
  "}",
  "if",
  "$",
  "$(w # )\n)",
  "$( (w) )",
  "`w \\`w\\``",
  "$(case x in x) w;; esac)",
  "${x#'}'}",
  '"${x%"$(w)"}"',
  "a\\\nb",
  "x=$(w)",
  '"$(w ")" `w`)"',
); // prettier-ignore
const beside = fc.constantFrom(
  "",
  "",
  "",
  " 2>&1",
  " >/dev/null",
  " <<E\nx $(w)\n`w`\nE\n",
  " <<'E'\n$(w)\nE\n",
  " <<-E\n\tx\n\tE\n",
);

const line: fc.Arbitrary<string> = fc.letrec<{ line: string; list: string; simple: string }>((tie) => ({
  line: fc.oneof(
    { maxDepth: 4 },
    tie("simple"),
    tie("list"),
    tie("list").map((all) => `( ${all}\n)`),
    tie("list").map((all) => `{ ${all}\n}`),
    fc.tuple(tie("list"), tie("list")).map(([test, body]) => `if ${test}\nthen ${body}\nelse w\nfi`),
    fc.tuple(word, tie("list")).map(([on, body]) => `case ${on} in (a) w;; *) ${body}\nesac`),
    fc.tuple(word, tie("list")).map(([over, body]) => `for v in ${over} b; do ${body}\ndone`),
    tie("list").map((body) => `until ${body}\ndo break; done`),
    tie("list").map((body) => `f() { ${body}\n}; f`),
    tie("line").map((inner) => `w "$(${inner}\n)"`),
  ),
  list: fc
    .tuple(tie("line"), fc.constantFrom("; ", "\n", " && ", " || ", " | ", "&", " # it's; w\n"), tie("line"))
    .map((parts) => parts.join("")),
  simple: fc
    .tuple(fc.constantFrom("", "", "a=1 ", "! ", "a=$(w) "), fc.array(word, { maxLength: 2 }), beside)
    .map(([before, words, after]) => `${before}w ${words.join(" ")}${after}`),
})).line;

/** Gives every `w` a number of its own, so that it is known which one ran. */
function numbered(text: string): string {
  let next = 0;
  return text.replaceAll(/\bw\b/g, () => `w${next++}`);
}
