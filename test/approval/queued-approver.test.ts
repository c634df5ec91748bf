import { setTimeout as sleep } from "node:timers/promises";
import { describe, expect, it } from "vitest";
import type { Answer, ApprovalRequest, Question } from "../../src/approval/approver.ts";
import { QueuedApprover } from "../../src/approval/queued-approver.ts";

interface Put {
  readonly question: Question;
  readonly signal: AbortSignal;
  answer(answer: Answer): void;
}

/** An approver whose questions the test answers itself. */
function person({ timeoutMs = 60_000, now = () => 0 }: { timeoutMs?: number; now?: () => number } = {}) {
  const put: Put[] = [];
  const interrupted: true[] = [];
  const approver = new QueuedApprover({
    timeoutMs,
    now,
    onInterrupt: () => interrupted.push(true),
    ask: (question, signal) => {
      const { promise, resolve, reject } = Promise.withResolvers<Answer>();
      signal.addEventListener("abort", () => reject(signal.reason));
      put.push({ question, signal, answer: resolve });
      return promise;
    },
  });
  return { approver, put, interrupted };
}

const never = new AbortController().signal;
let runs = 0;
/** Each of a run of its own. */
const request = (worker: string, path = "/out", more: Partial<ApprovalRequest> = {}): ApprovalRequest => {
  const run = `r${++runs}`;
  return { run, root: run, worker, operations: ["write", "delete"], paths: [path], ...more };
};
const tick = () => sleep(1);

describe("QueuedApprover", () => {
  it("remembers an approval for the session, for the same worker and paths only", async () => {
    const { approver, put } = person();
    const first = approver.decide(request("a"), never);
    put[0]?.answer("session");
    expect(await first).toMatchObject({ outcome: "approved", scope: "session" });
    expect(await approver.decide(request("a"), never)).toMatchObject({ outcome: "approved", scope: "session" });
    expect(put).toHaveLength(1);
    void approver.decide(request("b"), never);
    await tick();
    put[1]?.answer("no");
    void approver.decide(request("a", "/other"), never);
    await tick();
    expect(put.map(({ question }) => [question.worker, ...question.paths])).toEqual([
      ["a", "/out"],
      ["b", "/out"],
      ["a", "/other"],
    ]);
  });

  it("remembers an approval of one command line for no other", async () => {
    const { approver, put } = person();
    const exec = (command: string) => ({ ...request("a"), operations: ["exec"] as const, command });
    const first = approver.decide(exec("ls"), never);
    put[0]?.answer("session");
    expect((await first).outcome).toBe("approved");
    const second = approver.decide(exec("rm -r /out"), never);
    await tick();
    expect(put.map(({ question }) => question.command)).toEqual(["ls", "rm -r /out"]);
    put[1]?.answer("no");
    expect((await second).outcome).toBe("denied");
  });

  it("remembers neither a denial nor an approval for once", async () => {
    const { approver, put } = person();
    for (const [index, answer] of (["no", "once", "no"] as const).entries()) {
      const decision = approver.decide(request("a"), never);
      await tick();
      put[index]?.answer(answer);
      expect((await decision).outcome).toBe(answer === "once" ? "approved" : "denied");
    }
    expect(put).toHaveLength(3);
  });

  it("puts one question at a time, and equal ones that wait together once", async () => {
    const { approver, put } = person();
    const first = approver.decide(request("a"), never);
    const others = [request("b"), request("b"), request("c"), request("b")].map((one) => approver.decide(one, never));
    await tick();
    expect(put).toHaveLength(1);
    put[0]?.answer("no");
    await first;
    await tick();
    expect(put).toHaveLength(2);
    expect(put[1]?.question).toMatchObject({ worker: "b", runs: 3 });
    put[1]?.answer("once");
    await tick();
    put[2]?.answer("no");
    expect((await Promise.all(others)).map(({ outcome }) => outcome)).toEqual([
      "approved",
      "approved",
      "denied",
      "approved",
    ]);
  });

  it("puts one question for twenty runs that ask the same at once, and answers all of them", async () => {
    for (const answer of ["once", "tree", "session", "no"] as const) {
      const { approver, put } = person();
      const decisions = Array.from({ length: 20 }, () => approver.decide(request("a"), never));
      await tick();
      put[0]?.answer(answer);
      const outcomes = (await Promise.all(decisions)).map(({ outcome }) => outcome);
      expect(new Set(outcomes)).toEqual(new Set([answer === "no" ? "denied" : "approved"]));
      expect(outcomes).toHaveLength(20);
      expect(put).toHaveLength(1);
    }
  });

  it("asks twice where one run asks the same twice, for an answer is once for each run", async () => {
    const { approver, put } = person();
    const same = request("a");
    const [first, second] = [approver.decide(same, never), approver.decide(same, never)];
    put[0]?.answer("once");
    expect((await first).outcome).toBe("approved");
    await tick();
    put[1]?.answer("no");
    expect((await second).outcome).toBe("denied");
  });

  it.each<[string, Partial<ApprovalRequest>]>([
    ["worker", { worker: "b" }],
    ["operation", { operations: ["write"] }],
    ["path", { paths: ["/out", "/other"] }],
    ["command", { command: "ls" }],
    ["diff", { diff: "+a" }],
    ["directory", { directory: "/home" }],
    ["way down to the worker", { through: ["x", "a"] }],
    ["purpose", { why: "for fun" }],
  ])("asks about another %s by itself", async (_, more) => {
    const { approver, put } = person();
    const [first, second] = [request("a"), request("a", "/out", more)].map((one) => approver.decide(one, never));
    put[0]?.answer("once");
    expect((await first)?.outcome).toBe("approved");
    await tick();
    put[1]?.answer("no");
    expect((await second)?.outcome).toBe("denied");
  });

  it("remembers an approval for a tree of runs for that tree only", async () => {
    const { approver, put } = person();
    const inTree = (root: string) => approver.decide(request("a", "/out", { root }), never);
    const first = inTree("one");
    put[0]?.answer("tree");
    expect(await first).toMatchObject({ outcome: "approved", scope: "tree" });
    expect(await inTree("one")).toMatchObject({ outcome: "approved", scope: "tree" });
    void inTree("two");
    expect(put).toHaveLength(2);
  });

  it("remembers the trees of all runs that shared the question", async () => {
    const { approver, put } = person();
    const inTree = (root: string) => approver.decide(request("a", "/out", { root }), never);
    const both = [inTree("one"), inTree("two")];
    put[0]?.answer("tree");
    await Promise.all(both);
    expect(await Promise.all([inTree("one"), inTree("two")])).toMatchObject([{ scope: "tree" }, { scope: "tree" }]);
    expect(put).toHaveLength(1);
  });

  it("answers what waits in the queue and is covered by an approval meanwhile, without asking", async () => {
    const { approver, put } = person();
    const first = approver.decide(request("a", "/drafts/one.md"), never);
    const below = approver.decide(request("a", "/drafts/sub/two.md"), never);
    const sibling = approver.decide(request("a", "/other/three.md"), never);
    put[0]?.answer("session");
    expect((await first).outcome).toBe("approved");
    expect(await below).toMatchObject({ outcome: "approved", scope: "session" });
    await tick();
    expect(put.map(({ question }) => question.paths)).toEqual([["/drafts/one.md"], ["/other/three.md"]]);
    put[1]?.answer("no");
    expect((await sibling).outcome).toBe("denied");
  });

  it("spares a run that waits the question where it was approved for the session meanwhile", async () => {
    const { approver, put } = person();
    const first = approver.decide(request("a"), never);
    await tick();
    const second = approver.decide(request("a"), never);
    put[0]?.answer("session");
    expect((await first).outcome).toBe("approved");
    expect((await second).outcome).toBe("approved");
    expect(put).toHaveLength(1);
  });

  it("times out where nobody answers, and goes on with the next question", async () => {
    const { approver, put } = person({ timeoutMs: 20 });
    const [first, second] = [approver.decide(request("a"), never), approver.decide(request("b"), never)];
    expect((await first).outcome).toBe("timed_out");
    expect((await second).outcome).toBe("timed_out");
    expect(put).toHaveLength(2);
  });

  it("tells a time that is up apart from a no, and remembers neither", async () => {
    const { approver, put } = person({ timeoutMs: 20 });
    expect(await approver.decide(request("a"), never)).toMatchObject({ outcome: "timed_out", scope: "once" });
    const denied = approver.decide(request("a"), never);
    put[1]?.answer("no");
    expect(await denied).toMatchObject({ outcome: "denied", scope: "once", reason: "the user denied it" });
    void approver.decide(request("a"), never);
    expect(put).toHaveLength(3);
  });

  it("gives each question its whole time, however long it waited for its turn", async () => {
    let now = 0;
    const { approver, put } = person({ timeoutMs: 1000, now: () => now });
    const [first, second] = [approver.decide(request("a"), never), approver.decide(request("b"), never)];
    now = 9000;
    put[0]?.answer("no");
    await first;
    await tick();
    expect(put).toHaveLength(2);
    put[1]?.answer("once");
    expect((await second).outcome).toBe("approved");
  });

  it("times out what waited ten time limits for its turn, without asking", async () => {
    let now = 0;
    const { approver, put } = person({ timeoutMs: 1000, now: () => now });
    const [first, second] = [approver.decide(request("a"), never), approver.decide(request("b"), never)];
    now = 10_001;
    put[0]?.answer("no");
    await first;
    expect(await second).toMatchObject({
      outcome: "timed_out",
      reason: expect.stringContaining("waited too long"),
    });
    expect(put).toHaveLength(1);
  });

  it("denies what would make the queue longer than it may be", async () => {
    const { approver } = person();
    for (let n = 0; n < 1000; n++) void approver.decide(request("a", `/${n}`), never);
    expect(await approver.decide(request("b"), never)).toMatchObject({
      outcome: "denied",
      reason: expect.stringContaining("too many questions"),
    });
  });

  it("leaves room in the queue for others than the run that asks most", async () => {
    const { approver, put } = person();
    const ofOne = Array.from({ length: 101 }, (_, n) => approver.decide(request("a", `/${n}`, { run: "one" }), never));
    expect((await ofOne.at(-1))?.outcome).toBe("denied");
    const other = approver.decide(request("b"), never);
    for (let n = 0; n <= 100; n++, await tick()) put[n]?.answer("once");
    expect((await other).outcome).toBe("approved");
  });

  it("denies where nobody can be asked, and says why", async () => {
    const ask = async () => Promise.reject(new Error("the terminal is gone"));
    const decision = await new QueuedApprover({ ask, timeoutMs: 1000 }).decide(request("a"), never);
    expect(decision).toMatchObject({
      outcome: "denied",
      reason: "the question could not be asked (the terminal is gone)",
    });
  });

  it("withdraws the question of a run that was cancelled", async () => {
    const { approver, put } = person();
    const [asked, waiting] = [new AbortController(), new AbortController()];
    const first = approver.decide(request("a"), asked.signal);
    const second = approver.decide(request("b"), waiting.signal);
    const third = approver.decide(request("c"), never);
    waiting.abort(new Error("gone"));
    asked.abort(new Error("gone"));
    await expect(first).rejects.toThrow("gone");
    await expect(second).rejects.toThrow("gone");
    await tick();
    expect(put.map(({ question }) => question.worker)).toEqual(["a", "c"]);
    put[1]?.answer("once");
    expect((await third).outcome).toBe("approved");
  });

  it("takes an interrupt as a denial, and passes it on", async () => {
    const { approver, put, interrupted } = person();
    const decision = approver.decide(request("a"), never);
    put[0]?.answer("interrupt");
    expect((await decision).outcome).toBe("denied");
    expect(interrupted).toHaveLength(1);
  });
});
