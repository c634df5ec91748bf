import { afterEach, describe, expect, it, vi } from "vitest";
import type { ApprovalRequest, Decision } from "../../../src/approval/approver.ts";
import { QuestionsElsewhere } from "../../../src/fleet/elsewhere/questions-elsewhere.ts";
import {
  type Answered,
  type AskedElsewhere,
  MAX_QUESTIONS,
  type QuestionName,
} from "../../../src/fleet/model/question.ts";
import type { ClaimedWork } from "../../../src/fleet/model/work.ts";
import { AskingCoordinator } from "../../../src/fleet/work/asking-coordinator.ts";
import { deniesDirectories } from "../../../src/fleet/work/no-directories.ts";

const RUN = "aaaaaaaaaaaa";
const request: ApprovalRequest = {
  run: "bbbbbbbbbbbb",
  root: RUN,
  worker: "w",
  operations: ["exec"],
  paths: [],
  command: "ls",
  line: "ls",
};
const approved: Decision = { outcome: "approved", scope: "once", reason: "fine" };
const never = new AbortController().signal;

/** A machine and a coordinator around a queue in memory. */
function pair(timeoutMs = 60_000) {
  const rows = new Map<string, { name: QuestionName; json: string; answer: string | null }>();
  const textOf = ({ number }: QuestionName): string => String(number);
  const lost = new AbortController();
  const machine = new AskingCoordinator({ timeoutMs, pause: () => Promise.resolve() });
  const questions = {
    ask: vi.fn(async (name: QuestionName, json: string) => {
      rows.set(textOf(name), { name, json, answer: null });
      return { ok: true } as const;
    }),
    unask: vi.fn(async (name: QuestionName) => void rows.delete(textOf(name))),
    answers: async (): Promise<Answered[]> =>
      [...rows.values()].flatMap(({ name, answer }) => (answer === null ? [] : [{ ...name, json: answer }])),
  };
  const wake = (_: number, signal: AbortSignal) =>
    new Promise<void>((resolve) => {
      const timer = setTimeout(resolve, 5);
      signal.addEventListener("abort", () => resolve(clearTimeout(timer)));
    });
  const place = machine.through({ membership: { questions, lost: lost.signal }, store: { wake } });
  const item = { fleet: "f", request: { index: 0, key: "k" }, attempt: 1, run: RUN } as unknown as ClaimedWork;
  const attempt = machine.of(item);
  const decide = vi.fn<(asked: AskedElsewhere, signal: AbortSignal) => Promise<Decision>>(async () => approved);
  const troubles: string[] = [];
  const coordinator = new QuestionsElsewhere({
    id: "f",
    work: {
      questions: async () =>
        [...rows.values()].flatMap(({ name, json, answer }) =>
          answer === null ? [{ ...name, json, run: RUN, machine: "m", request: item.request }] : [],
        ),
      answer: async (name, json) => {
        const row = rows.get(textOf(name));
        if (row !== undefined) row.answer = json;
        return row !== undefined;
      },
    },
    decide,
    onTrouble: (detail) => void troubles.push(detail),
  });
  return { rows, lost, machine, questions, place, attempt, decide, coordinator, troubles };
}

afterEach(() => {
  vi.useRealTimers();
});

describe("a run on a machine", () => {
  it("continues with the answer of its coordinator", async () => {
    const p = pair();
    const asking = p.machine.decide(request, never);
    await vi.waitFor(() => expect(p.rows.size).toBe(1));
    await p.coordinator.look();
    // It is known already.
    await p.coordinator.look();
    expect(await asking).toEqual(approved);
    expect(p.decide).toHaveBeenCalledTimes(1);
    expect(p.rows.size).toBe(0);
  });

  it("is denied if the answer is to another question", async () => {
    const p = pair();
    const asking = p.machine.decide(request, never);
    await vi.waitFor(() => expect(p.rows.size).toBe(1));
    const [row] = p.rows.values();
    if (row !== undefined) row.json = row.json.replace('"ls"', '"rm"');
    await p.coordinator.look();
    expect(await asking).toMatchObject({ outcome: "denied", reason: expect.stringContaining("not to this question") });
  });

  it("is denied if no answer comes in time, and takes none that comes later", async () => {
    vi.useFakeTimers();
    const p = pair(1000);
    const asking = p.machine.decide(request, never);
    await vi.advanceTimersByTimeAsync(31_100);
    expect(await asking).toMatchObject({ outcome: "timed_out" });
    await vi.advanceTimersByTimeAsync(10);
    expect(p.questions.unask).toHaveBeenCalled();
  });

  it("that is cancelled withdraws its question, and the coordinator its own", async () => {
    const p = pair();
    const ends = new AbortController();
    const withdrawn = vi.fn();
    p.decide.mockImplementation(
      (_, signal) =>
        new Promise((_resolve, reject) =>
          signal.addEventListener("abort", () => {
            withdrawn();
            reject(signal.reason);
          }),
        ),
    );
    const asking = p.machine.decide(request, ends.signal);
    await vi.waitFor(() => expect(p.rows.size).toBe(1));
    await p.coordinator.look();
    ends.abort(new Error("it was cancelled"));
    await expect(asking).rejects.toThrow("it was cancelled");
    await vi.waitFor(() => expect(p.rows.size).toBe(0));
    expect(withdrawn).not.toHaveBeenCalled();
    await p.coordinator.look();
    await p.coordinator.end();
    expect(withdrawn).toHaveBeenCalledTimes(1);
    expect(p.troubles).toEqual([]);
  });

  it("waits for the next coordinator if its own ends", async () => {
    const p = pair();
    p.decide.mockImplementationOnce(
      (_, signal) => new Promise((_resolve, reject) => signal.addEventListener("abort", () => reject(signal.reason))),
    );
    const asking = p.machine.decide(request, never);
    await vi.waitFor(() => expect(p.rows.size).toBe(1));
    await p.coordinator.look();
    await p.coordinator.end();
    await p.coordinator.look();
    expect(await asking).toEqual(approved);
  });

  it("is denied by an error of its coordinator, and when its machine is lost", async () => {
    const p = pair();
    p.decide.mockRejectedValueOnce(new Error("a bug"));
    const asking = p.machine.decide(request, never);
    await vi.waitFor(() => expect(p.rows.size).toBe(1));
    await p.coordinator.look();
    expect(await asking).toMatchObject({ outcome: "denied", reason: expect.stringContaining("internal error") });
    expect(p.troubles).toEqual([expect.stringContaining("a bug")]);
    const other = p.machine.decide(request, never);
    p.lost.abort();
    expect(await other).toMatchObject({ outcome: "denied", reason: expect.stringContaining("lease") });
  });

  it("asks nothing without an item, too much, or for changes that are decided on at its end", async () => {
    const p = pair();
    expect(await p.machine.decide({ ...request, root: "cccccccccccc" }, never)).toMatchObject({ outcome: "denied" });
    const change = { ...request, run: RUN, operations: ["write", "delete"] as const };
    expect(await p.machine.decide(change, never)).toMatchObject({ outcome: "approved", scope: "once" });
    expect(await p.machine.decide({ ...request, diff: "x".repeat(300_000) }, never)).toMatchObject({
      outcome: "denied",
      reason: expect.stringContaining("256 KiB"),
    });
    expect(p.questions.ask).not.toHaveBeenCalled();
    p.questions.ask.mockResolvedValue({ ok: false, reason: "another attempt counts" } as never);
    for (let asked = 0; asked < MAX_QUESTIONS; asked += 1)
      expect(await p.machine.decide(request, never)).toMatchObject({ reason: "another attempt counts" });
    expect(await p.machine.decide(request, never)).toMatchObject({ reason: expect.stringContaining("500") });
    p.attempt[Symbol.dispose]();
    expect(await p.machine.decide(request, never)).toMatchObject({ outcome: "denied" });
    p.place[Symbol.dispose]();
  });
});

describe("a directory beyond the mounts", () => {
  it.each(["grant_read", "grant_write"] as const)(
    "is denied on a machine, whatever its rules say (%s)",
    async (operation) => {
      const appended: unknown[] = [];
      const run = {
        approver: { decide: async () => approved },
        audit: { append: async (record: unknown) => void appended.push(record) },
        ...{ emit: () => {}, now: () => 0 },
      };
      const approver = deniesDirectories(run as never);
      const grant = { ...request, operations: [operation], paths: ["/d"], directory: "/d" };
      expect(await approver.decide(grant, never)).toMatchObject({
        outcome: "denied",
        reason: expect.stringContaining("another machine"),
      });
      expect(appended).toMatchObject([{ type: "approval", outcome: "denied" }]);
      expect(await approver.decide(request, never)).toEqual(approved);
    },
  );
});
