// biome-ignore-all lint/suspicious/noTemplateCurlyInString: the strings are shell commands.
import { execFile } from "node:child_process";
import { existsSync } from "node:fs";
import { chmod, mkdir, mkdtemp, readdir, readFile, rm, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { promisify } from "node:util";
import fc from "fast-check";
import { describe, expect, it, onTestFinished } from "vitest";
import { decideShell } from "../../src/approval/shell-rules/decide.ts";
import type { ShellWord } from "../../src/approval/shell-rules/pattern.ts";
import { readLine } from "../../src/approval/shell-rules/reading.ts";
import { stateDirFrom } from "../../src/state/state-dir.ts";

/*
 * No parser of shell reads as the shell does, and a command that it does not see is a command that no rule allowed. So real shells
 * run what is pre-approved among random command lines, with a PATH where `ok` records its arguments and `EVIL` that it ran.
 */

const LONG = process.env.CORRAL_LONG === "1";
const LINES = LONG ? 4000 : 40;
const SEED = LONG ? Date.now() : 7;

const RULES = {
  default: "ask",
  rules: [
    { pattern: "ok **", approval: "pre_approved" },
    { pattern: "break", approval: "pre_approved" },
  ],
} as const;

/** Of these shells, those that are installed. Every cell starts with Corral's busybox, so it is there once an image was built. */
const SHELLS: Readonly<Record<string, () => Promise<readonly string[] | null>>> = {
  dash: async () => installed("/bin/dash"),
  bash: async () => installed("/bin/bash"),
  "bash as sh": async () => installed("/bin/bash", "--posix"),
  ash: async () => installed("/bin/busybox", "sh") ?? (await gate()),
};

function installed(path: string, ...rest: string[]): readonly string[] | null {
  return existsSync(path) ? [path, ...rest] : null;
}

async function gate(): Promise<readonly string[] | null> {
  const dir = join(stateDirFrom(process.env), "gate");
  const names = await readdir(dir).catch(() => []);
  const binary = names.find((name) => /^[0-9a-f]{64}$/.test(name));
  return binary === undefined ? null : installed(join(dir, binary, "busybox"), "sh");
}

describe.each(Object.keys(SHELLS))("in %s, a line that rules allow", (shell) => {
  it.each([
    ["of random signs", () => soup],
    ["of random shape", () => shaped],
  ])(
    "%s runs the commands that were judged, with their arguments, and nothing else",
    async (_what, lines) => {
      const argv = await SHELLS[shell]?.();
      if (!argv) return;
      const allowed = allowedOf(lines());
      const ran = await runEach(
        argv,
        allowed.map((text) => decideShell(text, RULES).runs),
      );
      let compared = 0;
      for (const [index, text] of allowed.entries()) {
        const judged = readLine(text).parts.flatMap((part) => (part.kind === "command" ? [part.words] : []));
        for (const args of ran[index] ?? []) {
          compared += 1;
          const what = `seed ${SEED}: ${JSON.stringify(text)} ran ${JSON.stringify(args)}`;
          expect(judged.some((words) => isOf(["ok", ...args], words)) && args[0] !== "EVIL ran", what).toBe(true);
        }
      }
      expect(allowed.length).toBeGreaterThan(LINES / 2);
      expect(compared).toBeGreaterThan(LINES / 2);
    },
    LONG ? 600_000 : 60_000,
  );
});

const known = new Map<unknown, readonly string[]>();

/** The same for every shell. */
function allowedOf(lines: fc.Arbitrary<string>): readonly string[] {
  const found =
    known.get(lines) ??
    fc
      .sample(lines, { numRuns: LINES * 40, seed: SEED })
      .filter((text) => decideShell(text, RULES).consent === "pre_approved")
      .slice(0, LINES);
  known.set(lines, found);
  return found;
}

/** True if the shell can have made the arguments of these words: all are known until the first that is not. */
function isOf(args: readonly string[], words: readonly ShellWord[]): boolean {
  const unknown = words.indexOf(null);
  const known = unknown < 0 ? words : words.slice(0, unknown);
  return known.every((word, at) => args[at] === word) && (unknown >= 0 || args.length === words.length);
}

const run = promisify(execFile);

/** For each line, the arguments of every `ok` that ran. */
async function runEach(shell: readonly string[], lines: readonly string[]): Promise<string[][][]> {
  const dir = await mkdtemp(join(tmpdir(), "corral-shell-"));
  onTestFinished(() => rm(dir, { recursive: true, force: true }));
  const [bin, cwd, log] = [join(dir, "bin"), join(dir, "cwd"), join(dir, "log")];
  for (const folder of [bin, cwd, log]) await mkdir(folder);
  const record = (args: string): string => `#!/bin/sh\nprintf '%s\\0' ${args} > "${log}/$LINE.$$"\n`;
  await writeFile(join(bin, "ok"), record('"" "$@"'));
  await writeFile(join(bin, "EVIL"), record('"" "EVIL ran"'));
  for (const program of ["ok", "EVIL"]) await chmod(join(bin, program), 0o755);
  // Patterns find these names, and `$x` is such a text too.
  for (const name of ["; EVIL", "$(EVIL)", "`EVIL`", "a b", "-x", "it's", "new\nEVIL"])
    await writeFile(join(cwd, name), "");
  await Promise.all(lines.map((text, index) => writeFile(join(dir, String(index)), text)));
  // `$( )` would take the last line breaks away, hence the `.`.
  const one =
    'text=$(cat "$n"; echo .); (cd cwd; timeout 5 env -i LINE="$n" x="; EVIL" y=\'$(EVIL)\' PATH="$PWD/../bin" HOME=/ "$@" -c "${text%.}")';
  const script = `for n in $(seq 0 ${lines.length - 1}); do ${one} < /dev/null > /dev/null 2>&1; done; :`;
  await run("sh", ["-c", script, "sh", ...shell], { cwd: dir });
  const ran: string[][][] = lines.map(() => []);
  for (const name of await readdir(log)) {
    const args = (await readFile(join(log, name), "utf8")).split("\0").slice(1, -1);
    ran[Number.parseInt(name, 10)]?.push(args);
  }
  return ran;
}

/** Signs in any order: what a parser may read otherwise than a shell. */
const soup = fc
  .array(
    fc.constantFrom(
      ...'\'|\'|"|"|`|\\|${x:-|${x#|${x%%|${x|${x}|$x|"$x"|}|}|$(|$(ok |)|)|;EVIL;|;EVIL #|&EVIL&| |'.split("|"),
      ..."ok |;ok |#| #|a|{|$|$((1|))|$'|$\"|!|1|+|é|Á|\u0101|*|[a-z]|~|~/|=|x=|--|-|<|>|2>&1|&".split("|"),
      ..."\n|\nEVIL\n|\nok |\\\n|\\'|\\\"|\\`|\\}|\\\\|\\$|\t|\u00a0|if |then |{ |esac|\u2028".split("|"),
      " | ok ",
      " || EVIL",
    ),
    { minLength: 1, maxLength: 14 },
  )
  .map((signs) => `ok ${signs.join("")}`);

const word = fc.constantFrom(
  ..."$(ok)|`ok b`|\"$(ok 1)\"|\"a `ok 2` b\"|'; EVIL'|\"; EVIL\"|\\;EVIL|a#b|''|\\'|'\\'|[a-z]*|~|~/x|*|?x|if|\\EVIL".split(
    "|",
  ),
  ...'$(ok # )\n)|$( (ok) )|`ok \\`ok 3\\``|"$(ok ")" `ok`)"|x=$(ok)|"it\'s $x"|$y|${x}z|--a=b|c=d|é|\'Á \u0085\'|"\\\\\\""'.split(
    "|",
  ),
  "'a\nEVIL'",
  "\\\n 5",
);
const beside = fc.constantFrom("", "", "", " 2>&1", " >/dev/null", " </dev/null 2>&-");

const shaped: fc.Arbitrary<string> = fc.letrec<{ line: string; list: string; simple: string }>((tie) => ({
  line: fc.oneof(
    { maxDepth: 3 },
    tie("simple"),
    tie("list"),
    tie("list").map((all) => `( ${all}\n)`),
    tie("list").map((all) => `{ ${all}\n}`),
    fc.tuple(tie("list"), tie("list")).map(([test, body]) => `if ${test}\nthen ${body}\nelse ok\nfi`),
    tie("list").map((body) => `until ${body}\ndo break; done`),
    tie("line").map((inner) => `ok "$(${inner}\n)"`),
  ),
  list: fc
    .tuple(tie("line"), fc.constantFrom("; ", "\n", " && ", " || ", " | ", "&", " # it's; EVIL\n"), tie("line"))
    .map((parts) => parts.join("")),
  simple: fc
    .tuple(fc.constantFrom("", "", "! "), fc.array(word, { maxLength: 3 }), beside)
    .map(([before, words, after]) => `${before}ok ${words.join(" ")}${after}`),
})).line;
