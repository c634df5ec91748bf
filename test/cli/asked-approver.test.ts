import { setTimeout as sleep } from "node:timers/promises";
import { describe, expect, it } from "vitest";
import { type Answer, AskedApprover, type Question } from "../../src/cli/asked-approver.ts";

interface Put {
  readonly question: Question;
  readonly signal: AbortSignal;
  answer(answer: Answer): void;
}

/** An approver whose questions the test answers itself. */
function person({ timeoutMs = 60_000 } = {}) {
  const put: Put[] = [];
  const interrupted: true[] = [];
  const approver = new AskedApprover({
    timeoutMs,
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
const request = (worker: string, path = "/out") => {
  return { run: "r", root: "r", worker, operations: ["write", "delete"] as const, paths: [path] };
};
const tick = () => sleep(1);

describe("AskedApprover", () => {
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

  it("gives an answer for once only to the runs that the question counted", async () => {
    const { approver, put } = person();
    const counted = approver.decide(request("a"), never);
    await tick();
    const late = approver.decide(request("a"), never);
    put[0]?.answer("once");
    expect((await counted).outcome).toBe("approved");
    await tick();
    put[1]?.answer("no");
    expect((await late).outcome).toBe("denied");
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
