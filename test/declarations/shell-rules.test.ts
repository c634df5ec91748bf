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

  describe("with grants", () => {
    const network =
      "sandbox: { network: { allow: [A.example:443, b.example:443, '*.c.example:443', x.c.example:443] } }";
    const rule = (grants: string, approval = "ask"): string =>
      `shell_rules: [{ pattern: git push **, approval: ${approval}, grants: ${grants} }]`;

    it("name hosts of the worker's own network, or all of them", () => {
      expect(shellRules(`${network}\n${rule("{ network: [a.EXAMPLE:443] }")}`).rules).toEqual([
        { pattern: "git push **", approval: "ask", grants: { network: ["a.example:443"] } },
      ]);
      expect(shellRules(`${network}\n${rule("{ network: true }")}`).rules[0]?.grants).toEqual({ network: true });
    });

    it.each([
      [
        "a host that the worker does not name",
        `${network}\n${rule("{ network: [d.example:443] }")}`,
        "d.example:443` is not an entry",
      ],
      [
        "a host that every command has",
        `${network}\n${rule("{ network: [x.c.example:443] }")}`,
        "open to every command by the entry `*.c",
      ],
      ["no network", rule("{ network: true }"), "needs a `sandbox.network` with a list"],
      [
        "the whole network",
        `sandbox: { network: true }\n${rule("{ network: true }")}`,
        "needs a `sandbox.network` with a list",
      ],
      ["a command that is blocked", `${network}\n${rule("{ network: true }", "blocked")}`, "this rule blocks them"],
      ["`false`", `${network}\n${rule("{ network: false }")}`, "must be `true` or a list of hosts"],
      ["a host without a port", `${network}\n${rule("{ network: [a.example] }")}`, "a port is missing"],
    ])("are refused for %s", (_, yaml, message) => {
      expect(problemsIn(yaml)).toEqual([expect.stringContaining(message)]);
    });

    it.each([
      ["git push origin main", ["h:1"]],
      ["git push", ["h:1"]],
      ["/tmp/git push origin", undefined],
      ["git push origin; true", undefined],
      ["A=b git push origin", undefined],
      ["git push > /tmp/x", undefined],
      ["git push $(curl h)", undefined],
      ["sh -c 'git push origin'", undefined],
      ["eval git push", undefined],
    ])("are given to that one command: %s", (line, granted) => {
      const rules = [{ pattern: "git push **", approval: "pre_approved", grants: { network: ["h:1"] } }] as const;
      expect(decideShell(line, { default: "pre_approved", rules }).grants?.network).toEqual(granted);
      const blocked = [...rules, { pattern: "git **", approval: "blocked" }] as const;
      expect(decideShell(line, { default: "ask", rules: blocked }).grants).toBeUndefined();
    });
  });
});
