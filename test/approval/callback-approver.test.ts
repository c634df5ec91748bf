import { describe, expect, it } from "vitest";
import type { ApprovalRequest } from "../../src/approval/approver.ts";
import { type ApprovalCallback, callbackApprover } from "../../src/approval/queued-approver.ts";

const never = new AbortController().signal;
const request = (run: string, path = "/out/a"): ApprovalRequest => {
  return { run, root: run, worker: "w", operations: ["write"], paths: [path] };
};
const decide = (callback: ApprovalCallback, timeoutMs = 60_000) =>
  callbackApprover(callback, { timeoutMs }).decide(request("r"), never);

describe("a program that decides", () => {
  it("needs no options, and has time", async () => {
    for (const options of [[], [{}]] as const) {
      const approver = callbackApprover(
        async () => {
          await new Promise((resolve) => setTimeout(resolve, 50));
          return "once";
        },
        ...options,
      );
      expect(await approver.decide(request("r"), never)).toMatchObject({ outcome: "approved" });
    }
    expect(() => callbackApprover(() => "once", { timeoutMs: Number.NaN })).toThrow(RangeError);
  });

  it.each([
    ["once", { outcome: "approved", scope: "once" }],
    ["tree", { outcome: "approved", scope: "tree" }],
    ["session", { outcome: "approved", scope: "session" }],
    ["no", { outcome: "denied", scope: "once" }],
    [{ outcome: "denied", scope: "once", reason: "not on a Sunday" }, { reason: "not on a Sunday" }],
    [
      { outcome: "approved", scope: "once", reason: "why not" },
      { outcome: "approved", reason: "why not" },
    ],
  ] as const)("answers %j", async (answer, decision) => {
    expect(await decide(async () => answer)).toMatchObject(decision);
  });

  it.each([
    ["once", "approved"],
    ["tree", "denied"],
    ["session", "denied"],
    [{ outcome: "approved", scope: "once", reason: "read" }, "approved"],
    [{ outcome: "approved", scope: "tree", reason: "all are" }, "denied"],
    [{ outcome: "denied", scope: "session", reason: "no" }, "denied"],
  ] as const)("answers %j about what the host would execute: %s", async (answer, outcome) => {
    const hostExecuted = [{ path: "/repo/.envrc", why: "direnv would run it" }];
    const decision = await callbackApprover(() => answer, { timeoutMs: 60_000 }).decide(
      { ...request("r", "/repo/.envrc"), hostExecuted },
      never,
    );
    expect(decision.outcome).toBe(outcome);
  });

  it("is asked with the request as it is", async () => {
    const asked: ApprovalRequest[] = [];
    await decide((one) => {
      asked.push(one);
      return "no";
    });
    expect(asked).toEqual([request("r")]);
  });

  it("is asked once by runs that ask the same, and side by side by others", async () => {
    const asked: string[] = [];
    const both = Promise.withResolvers<void>();
    const approver = callbackApprover(
      async ({ paths }) => {
        asked.push(...paths);
        if (asked.length === 2) both.resolve();
        await both.promise;
        return "once" as const;
      },
      { timeoutMs: 60_000 },
    );
    const decisions = Array.from({ length: 20 }, (_, n) => approver.decide(request(`r${n}`), never));
    decisions.push(approver.decide(request("other", "/in/b"), never));
    expect((await Promise.all(decisions)).every(({ outcome }) => outcome === "approved")).toBe(true);
    expect(asked).toEqual(["/out/a", "/in/b"]);
  });

  it("is not asked again about what it approved for the session, and is about what it denied", async () => {
    const answers = ["no", "session"] as const;
    let asked = 0;
    const approver = callbackApprover(() => answers[asked++] ?? "no", { timeoutMs: 60_000 });
    const outcomes: string[] = [];
    for (const run of ["1", "2", "3"]) outcomes.push((await approver.decide(request(run), never)).outcome);
    expect({ outcomes, asked }).toEqual({ outcomes: ["denied", "approved", "approved"], asked: 2 });
  });

  it("is asked again about what it denied, though it says that it is for the session", async () => {
    let asked = 0;
    const approver = callbackApprover(
      () => {
        asked++;
        return { outcome: "denied", scope: "session", reason: "no" };
      },
      { timeoutMs: 60_000 },
    );
    for (const run of ["1", "2"]) expect((await approver.decide(request(run), never)).outcome).toBe("denied");
    expect(asked).toBe(2);
  });

  it("denies where it throws, and says why", async () => {
    const reason = "the approval callback failed: no database";
    const throws: ApprovalCallback = () => {
      throw new Error("no database");
    };
    expect(await decide(throws)).toMatchObject({ outcome: "denied", reason });
    expect(await decide(async () => Promise.reject(new Error("no database")))).toMatchObject({
      outcome: "denied",
      reason,
    });
  });

  it.each([
    undefined,
    null,
    true,
    "yes",
    "interrupt",
    {},
    { outcome: "approved" },
    { outcome: "yes", scope: "once", reason: "" },
  ])("denies where it answers %j", async (answer) => {
    expect((await decide(async () => answer as never)).outcome).toBe("denied");
  });

  it("is timed out where it does not answer in time, and told so by its signal", async () => {
    let told: AbortSignal | undefined;
    const decision = await decide((_, signal) => {
      told = signal;
      return new Promise(() => {});
    }, 20);
    expect(decision.outcome).toBe("timed_out");
    expect(told?.aborted).toBe(true);
  });

  it("is timed out, not denied, where it fails because its time is up", async () => {
    const stops: ApprovalCallback = (_, signal) =>
      new Promise((_resolve, reject) => signal.addEventListener("abort", () => reject(new Error("stopped"))));
    expect((await decide(stops, 20)).outcome).toBe("timed_out");
  });

  it("is told when nobody waits for its answer any more", async () => {
    const cancelled = new AbortController();
    const told = Promise.withResolvers<void>();
    const approver = callbackApprover(
      (_, signal) => {
        signal.addEventListener("abort", () => told.resolve());
        return new Promise(() => {});
      },
      { timeoutMs: 60_000 },
    );
    const decision = approver.decide(request("r"), cancelled.signal);
    cancelled.abort(new Error("gone"));
    await expect(decision).rejects.toThrow("gone");
    await told.promise;
  });
});
