import pc from "picocolors";
import { describe, expect, it } from "vitest";
import { type ApprovalRequest, approveAll, questionKey } from "../../src/approval/approver.ts";
import { answersTo, QueuedApprover } from "../../src/approval/queued-approver.ts";
import { ruling } from "../../src/approval/rules.ts";
import { questionText } from "../../src/operations/wording/question-text.ts";

const signal = new AbortController().signal;
const plain: ApprovalRequest = {
  run: "r",
  root: "r",
  worker: "w",
  operations: ["write"],
  paths: ["/repo/.git/config"],
};
const why = "git on this machine would run what this names";
const executed: ApprovalRequest = { ...plain, hostExecuted: [{ path: "/repo/.git/config", why }] };

describe("what programs of the host would execute", () => {
  it("is approved by no rule, and denied by one", () => {
    expect(ruling([{ decide: "approve", paths: ["/**"] }])(plain)?.outcome).toBe("approved");
    expect(ruling([{ decide: "approve", paths: ["/**"] }, { decide: "approve" }])(executed)).toBeNull();
    expect(ruling([{ decide: "deny", paths: ["/repo/**"] }])(executed)?.outcome).toBe("denied");
  });

  it("waits in the mode approve_all", async () => {
    expect(await approveAll.decide(plain, signal)).toMatchObject({ outcome: "approved" });
    const decision = await approveAll.decide(executed, signal);
    expect(decision).toMatchObject({ outcome: "denied", unasked: true });
    expect(decision.reason).toMatch(
      /^git on this machine would run what this names, which the approval mode approve_all does not cover/,
    );
  });

  it("is asked each time, whatever was answered before", async () => {
    const asked: unknown[] = [];
    const approver = new QueuedApprover({
      ask: async (question) => {
        asked.push(question.hostExecuted);
        return "session";
      },
      timeoutMs: 60_000,
    });
    await approver.decide(plain, signal);
    await approver.decide(plain, signal);
    await approver.decide(executed, signal);
    await approver.decide(executed, signal);
    expect(asked).toEqual([undefined, executed.hostExecuted, executed.hostExecuted]);
    expect(answersTo(executed)).toEqual(["once", "no"]);
    expect(questionKey(executed)).not.toBe(questionKey(plain));
  });

  it("of a grant is in the question, and no earlier grant answers it", async () => {
    let asked = 0;
    const approver = new QueuedApprover({
      ask: async () => {
        asked += 1;
        return "session";
      },
      timeoutMs: 60_000,
    });
    const grant = (directory: string): ApprovalRequest => ({
      ...plain,
      operations: ["grant_write"],
      directory,
      paths: [directory],
    });
    await approver.decide(grant("/repo"), signal);
    await approver.decide(grant("/repo/src"), signal);
    expect(asked).toBe(1);
    await approver.decide({ ...grant("/repo/.git/hooks"), hostExecuted: [{ path: "/repo/.git/hooks", why }] }, signal);
    expect(asked).toBe(2);
  });

  it("is what a person reads first", () => {
    const many = Array.from({ length: 25 }, (_, index) => ({ path: `/repo/${index}/.git/config`, why }));
    const question = { ...executed, runs: 1, why: "to set it up", diff: "+a", hostExecuted: many };
    const { above, rest } = questionText(question, 200, pc.createColors(false));
    expect(above[0]).toContain(`${why}: /repo/0/.git/config`);
    expect(above[20]).toContain("and 5 more of this kind");
    expect(rest.slice(0, 5).map((line) => line.includes(why))).toEqual([true, true, true, true, true]);
  });
});
