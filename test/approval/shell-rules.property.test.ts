import fc from "fast-check";
import { describe, expect, it } from "vitest";
import { decideShell } from "../../src/approval/shell-rules/decide.ts";
import type { ShellRules } from "../../src/approval/shell-rules/pattern.ts";
import { type Consent, isLooser } from "../../src/sandbox/approval.ts";

const consent = fc.constantFrom<Consent>("pre_approved", "ask", "blocked");
const name = fc.constantFrom("git", "rm", "ls", "env", "find", "sh");
const argument = fc.constantFrom(
  "status",
  "push",
  "-f",
  "-exec",
  "a b",
  "it's",
  'say "x"',
  "$x",
  "*",
  "~",
  "docs/a",
  "..",
);
const words = fc.tuple(name, fc.array(argument, { maxLength: 3 })).map(([first, rest]) => [first, ...rest]);

const pattern = fc
  .tuple(
    fc.constantFrom("git", "rm", "ls", "*"),
    fc.array(fc.constantFrom("status", "push", "*", "docs/*", "-f"), { maxLength: 2 }),
    fc.boolean(),
  )
  .map(([first, rest, open]) => [first, ...rest, ...(open ? ["**"] : [])].join(" "));
const rules: fc.Arbitrary<ShellRules> = fc.record({
  default: consent,
  rules: fc.uniqueArray(fc.record({ pattern, approval: consent }), { maxLength: 5, selector: (rule) => rule.pattern }),
});

const single = (word: string) => `'${word.replaceAll("'", "'\\''")}'`;
const double = (word: string) => `"${word.replaceAll(/["\\$`]/g, "\\$&")}"`;
const escaped = (word: string) => word.replaceAll(/[^\n]/g, "\\$&");
const inPieces = (word: string) => [...word].map((char, at) => (at % 2 === 0 ? single(char) : double(char))).join("");
const quoting = fc.constantFrom(single, double, escaped, inPieces);

/** Command lines that are whole, from the forms that hold one another. */
const line: fc.Arbitrary<string> = fc.letrec<{ line: string; simple: string }>((tie) => ({
  line: fc.oneof(
    { maxDepth: 3, withCrossShrink: true },
    tie("simple"),
    fc
      .tuple(tie("line"), fc.constantFrom(";", "&&", "||", "|", "&", "\n"), tie("line"))
      .map((parts) => parts.join(" ")),
    tie("line").map((inner) => `( ${inner} )`),
    tie("line").map((inner) => `if ${inner}\nthen ls\nfi`),
    tie("line").map((inner) => `git "$(${inner})"`),
    tie("simple").map((inner) => `PATH=x ${inner} > out`),
  ),
  simple: fc.tuple(words, quoting).map(([all, quote]) => all.map(quote).join(" ")),
})).line;

describe("for any rules", () => {
  it("a command line is never agreed to more easily for a command that is added to it", () => {
    fc.assert(
      fc.property(line, line, fc.constantFrom(";", "&&", "||", "|", "&", "\n"), rules, (one, other, joint, given) => {
        const alone = decideShell(one, given).consent;
        for (const joined of [
          `${one} ${joint} ${other}`,
          `${other} ${joint} ${one}`,
          `git "$(${one})"`,
          `( ${one} )`,
        ]) {
          expect(isLooser(decideShell(joined, given).consent, alone), joined).toBe(false);
        }
      }),
      { numRuns: 400 },
    );
  });

  it("it is never agreed to more easily for a rule that only asks or blocks where nothing was asked before", () => {
    fc.assert(
      fc.property(line, rules, pattern, (command, given, added) => {
        const open: ShellRules = {
          ...given,
          default: "pre_approved",
          rules: given.rules.filter((rule) => rule.approval !== "ask"),
        };
        const before = decideShell(command, open).consent;
        const after = decideShell(command, {
          ...open,
          rules: [...open.rules, { pattern: added, approval: "blocked" }],
        });
        expect(isLooser(after.consent, before)).toBe(false);
      }),
      { numRuns: 300 },
    );
  });

  it("the same words decide the same, however they are quoted", () => {
    fc.assert(
      fc.property(words, fc.array(quoting, { minLength: 4, maxLength: 4 }), rules, (all, quotings, given) => {
        const plain = decideShell(all.map(single).join(" "), given);
        const quoted = decideShell(all.map((word, at) => (quotings[at] ?? single)(word)).join(" \\\n\t"), given);
        expect(quoted.consent).toBe(plain.consent);
        expect(quoted.because.pattern).toBe(plain.because.pattern);
      }),
      { numRuns: 400 },
    );
  });

  it("the order of the rules says nothing", () => {
    fc.assert(
      fc.property(line, rules, (command, given) => {
        const turned = { ...given, rules: given.rules.toReversed() };
        expect(decideShell(command, turned).consent).toBe(decideShell(command, given).consent);
      }),
      { numRuns: 200 },
    );
  });

  it("any text at all gets an answer", () => {
    const token = fc.constantFrom(
      "$(",
      ")",
      "`",
      "'",
      '"',
      "\\",
      "${",
      "}",
      "<<E",
      "\n",
      "((",
      "[[",
      "if ",
      "a",
      " ",
      "&>",
      "{",
      "é",
      "=",
    );
    const text = fc.oneof(
      fc.string(),
      fc.array(token, { maxLength: 40 }).map((tokens) => tokens.join("")),
    );
    fc.assert(
      fc.property(text, rules, (command, given) => {
        expect(["pre_approved", "ask", "blocked"]).toContain(decideShell(command, given).consent);
      }),
      { numRuns: 500 },
    );
  });
});
