import { execFileSync } from "node:child_process";
import { cp, glob, mkdtemp, readFile, rm } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { expect, it, onTestFinished } from "vitest";
import type { ApprovalRequest } from "../../src/approval/approver.ts";
import { callbackApprover } from "../../src/approval/queued-approver.ts";
import { openProject } from "../../src/library/opened-project.ts";
import { giveGate } from "../tiers/give-gate.ts";

const EXAMPLE = join(import.meta.dirname, "../../examples/fix-a-test");

it("the example's agent sees the test fail, mends the code when a person agrees to the diff, and sees it pass", async () => {
  const questions: ApprovalRequest[] = [];
  const dir = await mkdtemp(join(tmpdir(), "fix-"));
  onTestFinished(() => rm(dir, { recursive: true, force: true }));
  const [at, repo, stateDir] = [join(dir, "p"), join(dir, "p/repo"), join(dir, "s")];
  await giveGate(stateDir);
  await cp(EXAMPLE, at, { recursive: true });
  const git = (...args: string[]): string =>
    execFileSync("git", ["-c", "user.name=T", "-c", "user.email=t@example.org", "-C", repo, ...args]).toString();
  git("init", "-q");
  git("add", ".");
  git("commit", "-qm", "Pages");
  const approver = callbackApprover((question) => {
    questions.push(question);
    return git("status", "--porcelain") === "" ? "once" : "no";
  });
  await using project = await openProject(at, { env: process.env, stateDir, approver });
  const result = await project.run("fixer");
  const [transcript = ""] = await Array.fromAsync(glob("transcripts/*/*.jsonl", { cwd: stateDir }));
  const said = await readFile(join(stateDir, transcript), "utf8");
  expect(result, said).toMatchObject({ status: "succeeded", output: expect.stringContaining("all tests pass") });
  expect(questions).toMatchObject([{ operations: ["write"], paths: ["/repo/pages.js"] }]);
  expect(questions[0]?.diff).toMatch(/^-.*Math\.floor.*\n\+.*Math\.ceil/m);
  expect([...said.matchAll(/ (pass|fail) (\d)/g)].map(([, kind, count]) => `${kind} ${count}`)).toEqual([
    "pass 1",
    "fail 1",
    "pass 2",
    "fail 0",
  ]);
  expect(git("status", "--porcelain")).toBe(" M pages.js\n");
  expect(git("diff")).toContain("+  const count = Math.ceil(");
});
