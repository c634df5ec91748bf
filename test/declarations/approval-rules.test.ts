import { describe, expect, it } from "vitest";
import type { ApprovalRule } from "../../src/approval/rules.ts";
import { loadProject } from "../../src/declarations/project.ts";
import { DeclarationError } from "../../src/declarations/yaml/problem.ts";
import { projectFolder } from "./project-folder.ts";

async function rulesOf(lines: readonly string[]): Promise<readonly ApprovalRule[]> {
  const list = lines.map((line) => `    - ${line}\n`).join("");
  const dir = await projectFolder({ "corral.yaml": `version: 1\napproval:\n  rules:\n${list}` });
  return (await loadProject(dir)).approval.rules;
}

async function problemsOf(line: string): Promise<string[]> {
  try {
    await rulesOf([line]);
    return [];
  } catch (error) {
    if (!(error instanceof DeclarationError)) throw error;
    return error.problems.map(({ line: at, path, message }) => `${at} ${path} ${message}`);
  }
}

describe("the approval rules of a project", () => {
  it("are read in their order, one operation or many", async () => {
    expect(
      await rulesOf([
        '{ worker: "extract-*", operation: [write, delete], paths: [/text/**], decide: approve, why: it is its own }',
        "{ operation: exec, command: git  log **, decide: approve }",
        "{ decide: deny }",
      ]),
    ).toEqual([
      {
        worker: "extract-*",
        operations: ["write", "delete"],
        paths: ["/text/**"],
        decide: "approve",
        why: "it is its own",
      },
      { operations: ["exec"], command: "git log **", decide: "approve" },
      { decide: "deny" },
    ]);
  });

  it.each([
    ["{ operation: write, decide: approve, path: [/a] }", "unknown key `path`, did you mean `paths`?"],
    ["{ decide: allow }", 'must be "approve" or "deny"'],
    ["{ operation: reed, decide: deny }", "must be"],
    ["{ operation: [], decide: deny }", "must not be empty"],
    ["{ worker: a/b, decide: deny }", "must be a worker's name"],
    ["{ paths: [], decide: deny }", "must not be empty"],
    ["{ paths: [drafts/**], decide: deny }", "must be an absolute path"],
    ["{ paths: [/a/../b], decide: deny }", "must be written as `/b`"],
    ["{ paths: [/a//b], decide: deny }", "must be written as `/a/b`"],
    ["{ paths: ['/a\\b'], decide: deny }", "backslashes"],
    ["{ paths: [/a/b**], decide: deny }", "must be alone between slashes"],
    ["{ paths: [/a/*b*c*d*], decide: deny }", "at most 3 times between two slashes"],
    ["{ paths: [/**/a/**/b/**/c/**], decide: deny }", "at most 3 times"],
    ['{ command: "git log; rm", decide: approve }', "is not allowed in a pattern"],
    ["{ operation: [write, exec], command: ls, decide: approve }", "`command` is only for the operation `exec`"],
    ["{ command: ls, paths: [/a], decide: approve }", "`command` and `paths` cannot be used together"],
    ["{ operation: exec, paths: [/a], decide: approve }", "`paths` is not for the operation `exec`"],
    ["{ decide: approve }", "a rule that approves must name"],
    ["{ worker: trusted, decide: approve }", "a rule that approves must name"],
    ["{ operation: push, decide: approve }", "a rule that approves `push` must name `paths`"],
    ["{ operation: grant_network, decide: approve }", "a rule that approves `grant_network` must name `hosts`"],
    ["{ operation: grant_network, paths: [/a], decide: approve }", "`paths` is not for the operation `grant_network`"],
    ['{ operation: write, hosts: ["a.test:443"], decide: deny }', "`hosts` is only for the operation `grant_network`"],
    ['{ hosts: ["a.test:443"], paths: [/a], decide: deny }', "`hosts` cannot be used together with"],
    ["{ hosts: [a.test], decide: deny }", "a port is missing"],
    ["{ operation: [write, grant_read], decide: approve }", "a rule that approves `grant_read` must name `paths`"],
  ])("are refused with their place where they are wrong: %s", async (line, message) => {
    const problems = await problemsOf(line);
    expect(problems).toHaveLength(1);
    expect(problems[0]).toMatch(/^4 approval\.rules/);
    expect(problems[0]).toContain(message);
  });

  it("may deny what they may not approve so widely", async () => {
    expect(await problemsOf("{ operation: [push, grant_read, grant_write], decide: deny }")).toEqual([]);
  });

  it("are at most two hundred", async () => {
    await expect(rulesOf(Array.from({ length: 201 }, () => "{ decide: deny }"))).rejects.toThrow("at most 200");
  });
});
