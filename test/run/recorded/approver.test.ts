import { describe, expect, it } from "vitest";
import type { ApprovalRequest, Decision } from "../../../src/approval/approver.ts";
import type { AuditRecord } from "../../../src/audit/records.ts";
import type { RunEvent } from "../../../src/run/model/events.ts";
import { RecordedApprover } from "../../../src/run/recorded/run-history.ts";

const REQUEST: ApprovalRequest = { run: "r1", root: "r0", worker: "w", operations: ["write"], paths: ["/out/a"] };
const YES: Decision = { outcome: "approved", scope: "once", reason: "a person agreed" };
const NO: Decision = { outcome: "denied", scope: "once", reason: "a person said no" };
const never = new AbortController().signal;

function recorded(decision: Decision, append: (record: AuditRecord) => Promise<void>) {
  const events: RunEvent[] = [];
  let now = 0;
  const around = { emit: (event: RunEvent) => void events.push(event), now: () => (now += 40) };
  return { approver: new RecordedApprover({ decide: async () => decision }, { append }, around), events };
}

describe("a tree that is agreed to over and over", () => {
  it("cannot fill the trail: after very many approvals there are no more, for this tree alone", async () => {
    const records: AuditRecord[] = [];
    const { approver } = recorded(YES, async (record) => void records.push(record));
    for (let times = 0; times < 20_000; times += 1) await approver.decide(REQUEST, never);
    expect(await approver.decide(REQUEST, never)).toMatchObject({
      outcome: "denied",
      reason: expect.stringContaining("20000 approvals"),
    });
    for (let times = 0; times < 2000; times += 1) await approver.decide(REQUEST, never);
    expect(records).toHaveLength(21_000);
    expect(await approver.decide({ ...REQUEST, root: "r9" }, never)).toEqual(YES);
  });
});

describe("a decision", () => {
  it.each([YES, NO])("is handed on once it is recorded, with what was asked: %o", async (decision) => {
    const records: AuditRecord[] = [];
    const { promise: disk, resolve: written } = Promise.withResolvers<void>();
    const { approver } = recorded(decision, async (record) => {
      records.push(record);
      await disk;
    });
    let handedOn = false;
    const deciding = approver.decide({ ...REQUEST, why: "to be done", diff: "+secret" }, never).then((answer) => {
      handedOn = true;
      return answer;
    });
    while (records.length === 0) await Promise.resolve();
    await new Promise((later) => setTimeout(later, 5));
    expect(handedOn).toBe(false);
    written();
    expect(await deciding).toEqual(decision);
    expect(records).toMatchObject([
      {
        type: "approval",
        run: "r1",
        root: "r0",
        worker: "w",
        operations: ["write"],
        paths: ["/out/a"],
        why: "to be done",
        ...decision,
        waitedMs: 40,
      },
    ]);
    expect(JSON.stringify(records)).not.toContain("secret");
  });

  it("is a denial where it was an approval and cannot be recorded; a person is told why", async () => {
    const { approver, events } = recorded(YES, async () => {
      throw new Error("no space on /host/path");
    });
    const decision = await approver.decide(REQUEST, never);
    expect(decision).toMatchObject({ outcome: "denied", scope: "once" });
    expect(decision.reason).toContain("could not be recorded");
    expect(decision.reason).not.toContain("/host");
    expect(events).toMatchObject([{ type: "trouble", run: "r1", detail: "no space on /host/path" }]);
  });

  it.each([NO, { ...NO, outcome: "timed_out" } as const])(
    "stays what it is where it was none and cannot be recorded: %o",
    async (decision) => {
      const { approver } = recorded(decision, async () => Promise.reject(new Error("no space")));
      expect(await approver.decide(REQUEST, never)).toEqual(decision);
    },
  );

  it("that is no approval is recorded a thousand times for one tree, and the last says so; approvals always are", async () => {
    const records: AuditRecord[] = [];
    const append = async (record: AuditRecord): Promise<void> => void records.push(record);
    const { approver } = recorded(NO, append);
    for (let count = 0; count < 1010; count += 1) await approver.decide(REQUEST, never);
    expect(records).toHaveLength(1000);
    expect(records.at(-1)).toHaveProperty("note", expect.stringContaining("not recorded"));
    expect(records.at(-2)).toHaveProperty("note", undefined);
    await approver.decide({ ...REQUEST, root: "another" }, never);
    expect(records).toHaveLength(1001);
    const agreed = recorded(YES, append);
    for (let count = 0; count < 1010; count += 1) await agreed.approver.decide(REQUEST, never);
    expect(records).toHaveLength(2011);
  });
});

describe("a run that is over", () => {
  const untold = { append: async () => {} };
  const around = { emit: () => {}, now: () => 0 };

  it("asks nobody any more", async () => {
    let asked = false;
    const deaf = { decide: () => new Promise<Decision>(() => (asked = true)) };
    const approver = new RecordedApprover(deaf, untold, around);
    await expect(approver.decide(REQUEST, AbortSignal.abort(new Error("cancelled")))).rejects.toThrow("cancelled");
    expect(asked).toBe(false);
  });

  it("does not wait for an approver that does not listen, and takes no late answer of it", async () => {
    const records: AuditRecord[] = [];
    const yes = Promise.withResolvers<Decision>();
    const late = Promise.withResolvers<Decision>();
    const append = async (record: AuditRecord) => void records.push(record);
    const ends = new AbortController();
    const of = (answer: Promise<Decision>) => new RecordedApprover({ decide: () => answer }, { append }, around);
    const asked = [of(yes.promise), of(late.promise)].map((approver) => approver.decide(REQUEST, ends.signal));
    ends.abort(new Error("cancelled"));
    for (const answer of asked) await expect(answer).rejects.toThrow("cancelled");
    yes.resolve(YES);
    late.reject(new Error("the late answer fails"));
    await new Promise((later) => setTimeout(later, 5));
    expect(records).toEqual([]);
  });
});
