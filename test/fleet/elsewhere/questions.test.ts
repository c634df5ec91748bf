import { afterEach, describe, expect, it, vi } from "vitest";
import type { ApprovalRequest, Decision } from "../../../src/approval/approver.ts";
import {
  type Answered,
  type AskedElsewhere,
  type ClaimedWork,
  MAX_QUESTIONS,
  type QuestionName,
} from "../../../src/fleet/model/work.ts";
import { QuestionsElsewhere } from "../../../src/fleet/running/machine-questions.ts";
import { AskingCoordinator } from "../../../src/fleet/work/asking-coordinator.ts";
import { deniesDirectories } from "../../../src/fleet/work/host-fleet.ts";

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
  const waiting = () => [...rows.values()].filter(({ answer }) => answer === null);
  const work = {
    questions: vi.fn(async () => waiting().map(({ name, json }) => ({ ...name, bytes: json.length }))),
    readQuestions: vi.fn(async (_: string, names: readonly QuestionName[]) =>
      waiting()
        .filter(({ name }) => names.some((one) => textOf(one) === textOf(name)))
        .map(({ name, json }) => ({ ...name, json, run: RUN, machine: "m", request: item.request })),
    ),
    answer: vi.fn(async (name: QuestionName, json: string) => {
      const row = rows.get(textOf(name));
      if (row !== undefined) row.answer = json;
      return row !== undefined;
    }),
  };
  const coordinator = new QuestionsElsewhere({
    ...{ id: "f", work, decide },
    onTrouble: (detail) => void troubles.push(detail),
  });
  return { rows, lost, machine, questions, place, attempt, decide, coordinator, troubles, work };
}

afterEach(() => {
  vi.useRealTimers();
});

describe("a run on a machine", () => {
  it("continues with the answer of its coordinator", async () => {
    const p = pair();
    const asking = p.machine.decide(request, never);
    await vi.waitFor(() => expect(p.rows.size).toBe(1), { timeout: 30_000 });
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
    await vi.waitFor(() => expect(p.rows.size).toBe(1), { timeout: 30_000 });
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
    await vi.waitFor(() => expect(p.rows.size).toBe(1), { timeout: 30_000 });
    await p.coordinator.look();
    ends.abort(new Error("it was cancelled"));
    await expect(asking).rejects.toThrow("it was cancelled");
    await vi.waitFor(() => expect(p.rows.size).toBe(0), { timeout: 30_000 });
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
    await vi.waitFor(() => expect(p.rows.size).toBe(1), { timeout: 30_000 });
    await p.coordinator.look();
    await p.coordinator.end();
    await p.coordinator.look();
    expect(await asking).toEqual(approved);
  });

  it("is denied by an error of its coordinator, and when its machine is lost", async () => {
    const p = pair();
    p.decide.mockRejectedValueOnce(new Error("a bug"));
    const asking = p.machine.decide(request, never);
    await vi.waitFor(() => expect(p.rows.size).toBe(1), { timeout: 30_000 });
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

/** The next look lists what waits now, but its answer comes only when it is let. */
function heldLook({ work, coordinator }: ReturnType<typeof pair>): () => Promise<void> {
  const { promise, resolve } = Promise.withResolvers<void>();
  const list = work.questions.getMockImplementation();
  work.questions.mockImplementationOnce(async () => {
    const listed = (await list?.()) ?? [];
    await promise;
    return listed;
  });
  const looking = coordinator.look();
  return () => {
    resolve();
    return looking;
  };
}

describe("a coordinator of runs on machines", () => {
  const asks = (p: ReturnType<typeof pair>, number: number, json = `"${number}"`) =>
    p.rows.set(String(number), { name: { fleet: "f", index: 0, attempt: 1, number }, json, answer: null });
  const numbers = ({ mock }: ReturnType<typeof pair>["decide"]) => mock.calls.map(([{ number }]) => number);

  it("decides once on a question that a look listed before it was answered", async () => {
    const p = pair();
    asks(p, 0);
    let decided = (_: Decision): void => {};
    p.decide.mockImplementationOnce(() => new Promise((resolve) => (decided = resolve)));
    await p.coordinator.look();
    const listed = heldLook(p);
    decided(approved);
    await vi.waitFor(() => expect(p.rows.get("0")?.answer).not.toBe(null), { timeout: 30_000 });
    await listed();
    await p.coordinator.look();
    expect(p.decide).toHaveBeenCalledTimes(1);
    expect(p.work.answer).toHaveBeenCalledTimes(1);
    expect(p.work.readQuestions).toHaveBeenCalledTimes(1);
  });

  it("sends its decision again if the queue did not take it, and says so once", async () => {
    const p = pair();
    asks(p, 0);
    for (const _ of [1, 2]) p.work.answer.mockRejectedValueOnce(new Error("no queue"));
    for (let looks = 0; looks < 5; looks += 1) {
      await p.coordinator.look();
      await vi.waitFor(() => expect(p.work.answer).toHaveBeenCalledTimes(Math.min(looks + 1, 3)), { timeout: 30_000 });
    }
    expect(p.decide).toHaveBeenCalledTimes(1);
    expect(p.rows.get("0")?.answer).not.toBe(null);
    expect(p.troubles).toEqual([expect.stringContaining("no queue")]);
    // Then it is forgotten.
    p.rows.clear();
    await p.coordinator.look();
    asks(p, 0);
    await p.coordinator.look();
    expect(p.decide).toHaveBeenCalledTimes(2);
  });

  it("reads the texts of new questions alone, as many as have room", async () => {
    const p = pair();
    const large = `"${"x".repeat(11 * 1024 ** 2)}"`;
    const answers: ((decision: Decision) => void)[] = [];
    p.decide.mockImplementation(() => new Promise((resolve) => void answers.push(resolve)));
    for (const number of [0, 1, 2]) asks(p, number, large);
    await p.coordinator.look();
    expect(numbers(p.decide)).toEqual([0, 1]);
    await p.coordinator.look();
    expect(p.work.readQuestions).toHaveBeenCalledTimes(1);
    answers[0]?.(approved);
    await vi.waitFor(() => expect(p.rows.get("0")?.answer).not.toBe(null), { timeout: 30_000 });
    await p.coordinator.look();
    expect(numbers(p.decide)).toEqual([0, 1, 2]);
    expect(p.work.readQuestions.mock.lastCall?.[1]).toMatchObject([{ number: 2 }]);
  });

  it("reads a question that is larger than its room alone", async () => {
    const p = pair();
    asks(p, 0, `"${"x".repeat(33 * 1024 ** 2)}"`);
    asks(p, 1);
    await p.coordinator.look();
    expect(numbers(p.decide)).toEqual([0]);
    await vi.waitFor(() => expect(p.rows.get("0")?.answer).not.toBe(null), { timeout: 30_000 });
    await p.coordinator.look();
    expect(numbers(p.decide)).toEqual([0, 1]);
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
