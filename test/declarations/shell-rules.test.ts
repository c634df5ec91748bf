import { describe, expect, it } from "vitest";
import { decideShell } from "../../src/approval/shell-rules/decide.ts";
import type { ShellRules } from "../../src/approval/shell-rules/pattern.ts";
import { parseWorker } from "../../src/declarations/worker/worker.ts";
import { DeclarationError } from "../../src/declarations/yaml/problem.ts";

function shellRules(yaml: string): ShellRules {
  return parseWorker(`---\nmodel: p/m\n${yaml}\n---\n`, "w.worker").shellRules;
}

function problemsIn(yaml: string): string[] {
  try {
    shellRules(yaml);
    return [];
  } catch (error) {
    if (!(error instanceof DeclarationError)) throw error;
    return error.problems.map(({ line, column, path, message }) => `${line}:${column} ${path} ${message}`);
  }
}

describe("the shell rules of a worker file", () => {
  it("are a default and rules, each with the reason that it gives", () => {
    const yaml = `shell_rules:
  default: blocked
  rules:
    - { pattern: git status, approval: pre_approved }
    - { pattern: "git  push **", approval: ask, why: others see it }`;
    expect(shellRules(yaml)).toEqual({
      default: "blocked",
      rules: [
        { pattern: "git status", approval: "pre_approved" },
        { pattern: "git push **", approval: "ask", why: "others see it" },
      ],
    });
  });

  it("can be the list alone, and then ask by default", () => {
    expect(shellRules('shell_rules: [{ pattern: "ls **", approval: pre_approved }]')).toEqual({
      default: "ask",
      rules: [{ pattern: "ls **", approval: "pre_approved" }],
    });
  });

  it("still reads the spelling `preApproved`", () => {
    const rules = 'shell_rules: { default: preApproved, rules: [{ pattern: "rm **", approval: preApproved }] }';
    expect(shellRules(rules)).toEqual({
      default: "pre_approved",
      rules: [{ pattern: "rm **", approval: "pre_approved" }],
    });
  });

  it.each(["", "shell_rules: {}", "shell_rules: []", "shell_rules: { rules: [] }"])(
    "ask for everything in %j",
    (yaml) => {
      expect(shellRules(yaml)).toEqual({ default: "ask", rules: [] });
    },
  );

  it("decide a command as they stand in the file", () => {
    const rules = shellRules("shell_rules: [{ pattern: git status, approval: pre_approved }]");
    expect(decideShell("git status", rules).consent).toBe("pre_approved");
    expect(decideShell("git statusx", rules).consent).toBe("ask");
  });
});

describe("a mistake in the shell rules", () => {
  it.each([
    ["shell_rules: git status", "3:14 shell_rules must be a list of rules, or a map of `default` and `rules`"],
    ["shell_rules: { defualt: ask }", "3:16 shell_rules.defualt unknown key `defualt`, did you mean `default`?"],
    ["shell_rules: { default: no }", '3:25 shell_rules.default must be "pre_approved", "ask" or "blocked", not "no"'],
    ["shell_rules: [{ pattern: ls }]", "3:15 shell_rules.0.approval is missing"],
    [
      "shell_rules: [{ pattern: ls, approval: ask, when: now }]",
      "3:45 shell_rules.0.when unknown key `when`, did you mean `why`?",
    ],
    [
      "shell_rules: { rules: [{ pattern: ' ', approval: ask }] }",
      "3:35 shell_rules.rules.0.pattern must be the words of a command, such as `git status` or `git log **`",
    ],
    [
      "shell_rules: [{ pattern: ls, approval: ask }, { pattern: ' ls', approval: blocked }]",
      "3:58 shell_rules.1.pattern `ls` is listed twice",
    ],
  ])("%j is told at its place", (yaml, expected) => {
    expect(problemsIn(yaml)).toEqual([expected]);
  });

  it.each([
    ["git status; rm", "`;` is not allowed"],
    ["ls | wc", "`|` is not allowed"],
    ['git commit -m \\"x\\"', '`"` is not allowed'],
    ["echo $HOME", "`$` is not allowed"],
    ["git ** push", "must be the last word"],
    ["git log**", "must be the last word"],
    ["cat ~/notes", "write the full path"],
    ["CI=1 npm test", "cannot match variables"],
  ])("the pattern %s, which could never match, is refused", (pattern, message) => {
    expect(problemsIn(`shell_rules: [{ pattern: "${pattern}", approval: blocked }]`)).toEqual([
      expect.stringContaining(message),
    ]);
  });
});
