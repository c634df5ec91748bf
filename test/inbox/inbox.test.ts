import { readFileSync } from "node:fs";
import { copyFile, mkdir, mkdtemp, readdir, readFile, rm, symlink, utimes, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { afterEach, beforeEach, describe, expect, it, vi } from "vitest";
import type { ApprovalRequest, Approver, Decision } from "../../src/approval/approver.ts";
import {
  callbackApprover,
  isShareable,
  QueuedApprover,
  type QueuedApproverOptions,
} from "../../src/approval/queued-approver.ts";
import { InboxBoard } from "../../src/inbox/inbox-board.ts";
import { InboxFolder, withdrawn } from "../../src/inbox/inbox-folder.ts";
import {
  countWaiting,
  decideApproval,
  listApprovals,
  pageOfApprovals,
  showApproval,
} from "../../src/operations/approvals.ts";
import { currentOwner, loadSealKey, type Owner } from "../../src/state/owner.ts";
import { projectPaths } from "../../src/state/state-dir.ts";

const PROJECT = "/projects/a";
const never = new AbortController().signal;
let stateDir = "";
let key: Buffer;
let boards: InboxBoard[] = [];
const troubles: Error[] = [];

beforeEach(async () => {
  stateDir = await mkdtemp(join(tmpdir(), "corral-inbox-"));
  key = await loadSealKey(stateDir);
});
afterEach(async () => {
  vi.restoreAllMocks();
  for (const board of boards) board[Symbol.dispose]();
  boards = [];
  await rm(stateDir, { recursive: true, force: true });
  expect(troubles.splice(0)).toEqual([]);
});

const dir = (project = PROJECT) => projectPaths(stateDir, project).inbox;
const folder = (self: Owner = currentOwner()) => new InboxFolder({ dir: dir(), key, self });
function board(self: Owner = currentOwner(), project = PROJECT): InboxBoard {
  const made = new InboxBoard(
    project,
    () => ({ dir: dir(project), key, self }),
    (error) => troubles.push(error),
  );
  boards.push(made);
  return made;
}

let runs = 0;
const request = (more: Partial<ApprovalRequest> = {}): ApprovalRequest => {
  const run = `r${++runs}`;
  return { run, root: run, worker: "w", operations: ["write"], paths: ["/out/a"], diff: "+new", ...more };
};
/** Only the inbox can answer, unless `ask` is given. */
function approver(options: Partial<QueuedApproverOptions> = {}, on = board()): QueuedApprover {
  const made = new QueuedApprover({ ask: null, timeoutMs: 60_000, atOnce: 1000, at: "board", ...options });
  made.shareOn(on);
  return made;
}
const asks = (until: AbortSignal[] = []) => ({
  at: "terminal" as const,
  by: "tess",
  ask: (_: unknown, signal: AbortSignal): Promise<never> => {
    until.push(signal);
    return new Promise((__, reject) => signal.addEventListener("abort", () => reject(signal.reason)));
  },
});
function shared(one: Approver): Approver {
  if (!isShareable(one)) throw new Error("it is not shared");
  one.shareOn(board());
  return one;
}
const waiting = async () => await listApprovals(stateDir, { state: "waiting" });
const decided = async () => await listApprovals(stateDir, { state: "decided" });
const only = async () => {
  const [one, second] = await waiting();
  expect(second).toBeUndefined();
  if (one === undefined) throw new Error("no question waits");
  return one;
};
const yes = { answer: "once", by: "ann", via: "command" } as const;
/** Another process than this one, which has ended. */
const dead = (): Owner => ({ ...currentOwner(), startTicks: "1" });

describe("a question in the inbox", () => {
  it("is decided by another one, who sees what is asked, and the asker learns who and what", async () => {
    const decision = approver().decide(request(), never);
    const { id, digest, ...shown } = await only();
    expect(shown).toMatchObject({
      ...{ project: PROJECT, state: "waiting", answers: ["once", "tree", "no"] },
      question: { worker: "w", paths: ["/out/a"], diff: "+new", runs: 1 },
    });
    const end = await decideApproval(stateDir, id, { ...yes, digest });
    expect(end).toMatchObject({ state: "decided", outcome: "approved", scope: "once", by: "ann", via: "command" });
    expect(await decision).toMatchObject({ outcome: "approved", scope: "once", by: "ann" });
    expect(await waiting()).toEqual([]);
    expect(await decided()).toMatchObject([{ id, by: "ann", question: { diff: "+new" } }]);
  });

  it.each([
    ["no", { outcome: "denied", scope: "once" }],
    ["tree", { outcome: "approved", scope: "tree" }],
  ] as const)("can be answered with %s", async (answer, expected) => {
    const decision = approver().decide(request(), never);
    await decideApproval(stateDir, (await only()).id, { ...yes, answer });
    expect(await decision).toMatchObject(expected);
  });

  it("is in a list with so many others as may be read for one list, the oldest first", async () => {
    const one = approver();
    for (const path of ["/out/1", "/out/2", "/out/3"])
      void one.decide(request({ paths: [path], diff: "x".repeat(7 * 1024 ** 2) }), never);
    expect((await waiting()).map(({ question }) => question.paths)).toEqual([["/out/1"], ["/out/2"]]);
    const read = vi.spyOn(InboxFolder.prototype, "find");
    const [first, second] = await listApprovals(stateDir, { state: "waiting", limit: 1 });
    expect({ first: first?.question.paths, second }).toEqual({ first: ["/out/1"] });
    expect(read).toHaveBeenCalledTimes(1);
    read.mockClear();
    expect(await countWaiting(stateDir, PROJECT)).toBe(3);
    expect(read).not.toHaveBeenCalled();
    expect((await showApproval(stateDir, "latest")).question.paths).toEqual(["/out/3"]);
  });

  it.each(["waiting", "decided"] as const)(
    "is on one page of those that are %s, also if another page ends at the same moment or a question goes",
    async (state) => {
      const one = approver();
      const paths = ["/out/1", "/out/2", "/out/3", "/out/4", "/out/5"];
      for (const path of paths) void one.decide(request({ paths: [path] }), never);
      if (state === "decided") for (const { id } of await waiting()) await decideApproval(stateDir, id, yes);
      const { sized } = InboxFolder.prototype;
      vi.spyOn(InboxFolder.prototype, "sized").mockImplementation(function (this: InboxFolder, which) {
        return sized.call(this, which).map((file) => ({ ...file, at: 1_700_000_000_000.25 }));
      });
      const found: string[] = [];
      let after: string | null = null;
      let pages = 0;
      do {
        const page: Awaited<ReturnType<typeof pageOfApprovals>> = await pageOfApprovals(stateDir, {
          ...{ state, limit: 2 },
          ...(after === null ? {} : { after }),
        });
        found.push(...page.approvals.flatMap(({ question }) => question.paths));
        after = page.next;
        pages += 1;
      } while (after !== null && pages < 10);
      expect(found.toSorted()).toEqual(paths);
      expect(pages).toBe(3);
    },
  );

  it("is decided once, by the first of many", async () => {
    const decision = approver().decide(request(), never);
    const { id } = await only();
    const answers = Array.from({ length: 40 }, (_, index) => (index % 2 === 0 ? "once" : "no") as "once" | "no");
    const settled = await Promise.allSettled(
      answers.map((answer, index) => decideApproval(stateDir, id, { ...yes, answer, by: `p${index}` })),
    );
    const won = settled.filter(({ status }) => status === "fulfilled");
    expect(won).toHaveLength(1);
    const [{ by = null } = {}] = await decided();
    expect((await decision).by).toBe(by);
    const lost = settled.flatMap((one) => (one.status === "rejected" ? [one.reason] : []));
    expect(new Set(lost.map(({ code }) => code))).toEqual(new Set(["ALREADY_DECIDED"]));
    expect(lost[0].message).toContain(String(by));
  });

  it("is decided where it was asked, unless another one was faster", async () => {
    const put = Promise.withResolvers<"once">();
    const seen: Decision[] = [];
    const local = approver({ ...asks(), ask: () => put.promise, onDecidedElsewhere: (one) => seen.push(one) });
    const first = local.decide(request(), never);
    const { id } = await only();
    put.resolve("once");
    expect(await first).toMatchObject({ outcome: "approved", reason: "the user approved it" });
    expect(await showApproval(stateDir, id)).toMatchObject({ outcome: "approved", by: "tess", via: "terminal" });
    await expect(decideApproval(stateDir, id, yes)).rejects.toMatchObject({ code: "ALREADY_DECIDED" });
    expect(seen).toEqual([]);

    const late = Promise.withResolvers<"once">();
    const slow = approver({ ...asks(), ask: () => late.promise, onDecidedElsewhere: (one) => seen.push(one) });
    const second = slow.decide(request(), never);
    // Both in the same moment: the end is there before the asker has looked.
    folder().end((await only()).id, {
      ...{ digest: (await only()).digest, decidedAt: new Date().toISOString(), outcome: "denied", scope: null },
      ...{ directory: null, by: "ann", via: "command" },
    });
    late.resolve("once");
    expect(await second).toMatchObject({ outcome: "denied", by: "ann" });
    expect(seen).toMatchObject([{ outcome: "denied", by: "ann" }]);
  });

  it("takes the question away from who reads it where it was asked, and says who decided", async () => {
    const until: AbortSignal[] = [];
    const seen: Decision[] = [];
    const local = approver({ ...asks(until), atOnce: 1, onDecidedElsewhere: (one) => seen.push(one) });
    const both = [request(), request({ paths: ["/out/b"] })].map((one) => local.decide(one, never));
    // The second waits for its turn there, and can be decided here all the same.
    const ids = new Map((await waiting()).map(({ id, question }) => [question.paths[0], { id }]));
    const [first, second] = [ids.get("/out/a"), ids.get("/out/b")];
    await decideApproval(stateDir, second?.id ?? "", yes);
    expect(await both[1]).toMatchObject({ outcome: "approved", by: "ann" });
    expect(until.map(({ aborted }) => aborted)).toEqual([false]);
    await decideApproval(stateDir, first?.id ?? "", yes);
    await both[0];
    expect(until.map(({ aborted }) => aborted)).toEqual([true]);
    await expect.poll(() => seen.length).toBe(1);
  });

  it("answers for the tree as a person at the terminal does", async () => {
    const one = approver();
    const root = "a".repeat(12);
    const [first, second] = [request({ root }), request({ root, paths: ["/out/b"] })].map((each) =>
      one.decide(each, never),
    );
    await decideApproval(stateDir, (await waiting())[0]?.id ?? "", { ...yes, answer: "tree" });
    expect(await first).toMatchObject({ outcome: "approved", scope: "tree" });
    // The other one in the same directory is covered, and is no question any more.
    expect(await second).toMatchObject({ outcome: "approved", scope: "tree" });
    expect(await waiting()).toEqual([]);
    expect(await one.decide(request({ root }), never)).toMatchObject({ outcome: "approved", scope: "tree" });
    expect(await waiting()).toEqual([]);
    void one.decide(request(), never);
    expect(await waiting()).toHaveLength(1);
  });

  it("names all runs that wait for it, those that joined it too, and an answer is for all of them", async () => {
    for (const answer of ["once", "tree", "no"] as const) {
      const one = approver();
      const requests = Array.from({ length: 5 }, () => request());
      const [first, ...others] = requests;
      const decisions = [one.decide(first as ApprovalRequest, never)];
      const before = await only();
      expect(before.question.waiting).toEqual([{ run: first?.run, root: first?.root }]);
      decisions.push(...others.map((each) => one.decide(each, never)));
      const after = await only();
      expect(after).toMatchObject({ id: before.id, question: { run: first?.run, runs: 5 } });
      expect(after.question.waiting).toEqual(requests.map(({ run, root }) => ({ run, root })));
      for (const { root } of requests)
        expect(await listApprovals(stateDir, { state: "waiting", root })).toMatchObject([{ id: before.id }]);
      expect(await listApprovals(stateDir, { state: "waiting", root: "another" })).toEqual([]);
      // What was shown before the others joined is not what is decided now.
      await expect(
        decideApproval(stateDir, before.id, { ...yes, answer, digest: before.digest }),
      ).rejects.toMatchObject({ code: "QUESTION_CHANGED" });
      await decideApproval(stateDir, after.id, { ...yes, answer, digest: after.digest });
      const outcomes = (await Promise.all(decisions)).map(({ outcome }) => outcome);
      expect(outcomes).toEqual(Array(5).fill(answer === "no" ? "denied" : "approved"));
      expect(await waiting()).toEqual([]);
    }
  });

  it("is asked again for the runs that joined in the moment of the answer, which did not name them", async () => {
    const one = approver();
    const first = one.decide(request(), never);
    const before = await only();
    const late = [one.decide(request(), never), one.decide(request(), never)];
    // Written by a process that had read the question before.
    const how = { outcome: "approved", scope: "once", directory: null, by: "ann", via: "command" } as const;
    folder().end(before.id, { digest: before.digest, decidedAt: new Date().toISOString(), ...how });
    expect(await first).toMatchObject({ outcome: "approved", by: "ann" });
    const after = await only();
    expect(after.question.runs).toBe(2);
    expect(after.id).not.toBe(before.id);
    // What is kept is what was decided on.
    expect(await showApproval(stateDir, before.id)).toMatchObject({ by: "ann", question: { runs: 1 } });
    await decideApproval(stateDir, after.id, { ...yes, answer: "no" });
    expect(await Promise.all(late)).toMatchObject([{ outcome: "denied" }, { outcome: "denied" }]);
  });

  it("is asked again where it came up for the runs that were not in it, and one answer there is for all", async () => {
    const until: AbortSignal[] = [];
    const asked: number[] = [];
    const put = Promise.withResolvers<"once">();
    const local = approver({
      ...asks(),
      atOnce: 1,
      ask: (question, signal) => {
        asked.push(question.runs);
        return asked.length === 1 ? asks(until).ask(question, signal) : put.promise;
      },
    });
    const [first, others] = [local.decide(request(), never), [] as Promise<Decision>[]];
    const { id, digest } = await only();
    others.push(...Array.from({ length: 2 }, () => local.decide(request(), never)));
    folder().end(id, {
      ...{ digest, decidedAt: new Date().toISOString(), outcome: "approved", scope: "once" },
      ...{ directory: null, by: "ann", via: "command" },
    });
    expect(await first).toMatchObject({ outcome: "approved", by: "ann" });
    expect((await only()).question.runs).toBe(2);
    others.push(local.decide(request(), never));
    await expect.poll(() => asked.length).toBe(2);
    put.resolve("once");
    expect((await Promise.all(others)).map(({ by }) => by)).toEqual([undefined, undefined, undefined]);
    expect(await waiting()).toEqual([]);
  });

  it("stays for the others when one of its runs ends, and is withdrawn with the last", async () => {
    const one = approver();
    const stops = Array.from({ length: 3 }, () => new AbortController());
    const requests = stops.map(() => request());
    const decisions = stops.map(({ signal }, index) => one.decide(requests[index] as ApprovalRequest, signal));
    const { id } = await only();
    for (const [index, stop] of stops.entries()) {
      expect((await only()).id).toBe(id);
      expect((await only()).question).toMatchObject({ run: requests[index]?.run, runs: 3 - index });
      stop.abort(new Error("over"));
      await expect(decisions[index]).rejects.toThrow("over");
    }
    expect(await waiting()).toEqual([]);
    expect(await showApproval(stateDir, id)).toMatchObject({ outcome: "withdrawn" });
  });

  it("keeps its place among those that wait when another run joins it", async () => {
    const one = approver();
    for (const path of ["/out/1", "/out/2", "/out/1"]) void one.decide(request({ paths: [path] }), never);
    expect(
      folder()
        .sized("waiting")
        .map(({ id }) => id),
    ).toEqual((await waiting()).map(({ id }) => id));
    expect((await waiting()).map(({ question }) => [question.paths[0], question.runs])).toEqual([
      ["/out/1", 2],
      ["/out/2", 1],
    ]);
  });

  it("denies if another one has ended it, and the answer is not there", async () => {
    const put = Promise.withResolvers<"once">();
    const decision = approver({ ...asks(), ask: () => put.promise }).decide(request(), never);
    const { id, digest } = await only();
    folder().end(id, { ...withdrawn({ digest }), outcome: "denied", by: "ann" });
    // Removed between the two looks of the asker.
    vi.spyOn(InboxFolder.prototype, "endOf").mockReturnValue(null);
    put.resolve("once");
    expect(await decision).toMatchObject({ outcome: "denied", reason: expect.stringContaining("not there any more") });
  });

  it("is whole with the line separators of Unicode in what a worker wrote and in what was decided", async () => {
    const odd = "a\u2028b\u2029c\u0085d";
    const wider = [`/home/${odd}`];
    const grant = { operations: ["grant_read"], paths: ["/home/x"], directory: "/home/x", wider, why: odd, diff: odd };
    const decision = approver().decide(request(grant as Partial<ApprovalRequest>), never);
    const { id, question } = await only();
    expect(question).toMatchObject({ why: odd, diff: odd });
    await decideApproval(stateDir, id, { ...yes, by: `ann${odd}`, directory: `/home/${odd}` });
    expect(await decision).toMatchObject({ outcome: "approved", by: `ann${odd}`, directory: `/home/${odd}` });
    expect(await decided()).toMatchObject([{ id, by: `ann${odd}` }]);
  });

  it("is withdrawn when no run waits for it, or its process ends in order", async () => {
    const stop = new AbortController();
    const on = board();
    const first = approver({}, on).decide(request(), stop.signal);
    const { id } = await only();
    stop.abort(new Error("over"));
    await expect(first).rejects.toThrow("over");
    expect(await showApproval(stateDir, id)).toMatchObject({ state: "decided", outcome: "withdrawn", by: null });
    await expect(decideApproval(stateDir, id, yes)).rejects.toMatchObject({ code: "ALREADY_DECIDED" });
    void approver({}, on).decide(request({ paths: ["/out/c"] }), never);
    expect(await waiting()).toHaveLength(1);
    on[Symbol.dispose]();
    expect(await waiting()).toEqual([]);
  });

  it("is withdrawn when its process was killed, and cannot be decided then", async () => {
    void approver({}, board(dead())).decide(request(), never);
    const [id = ""] = folder().waiting();
    await expect(decideApproval(stateDir, id, yes)).rejects.toMatchObject({ code: "ALREADY_DECIDED" });
    expect(await waiting()).toEqual([]);
    expect(await showApproval(stateDir, id)).toMatchObject({ outcome: "withdrawn" });
  });

  it("times out as at a terminal, and nobody can decide it after", async () => {
    expect(await approver({ timeoutMs: 30 }).decide(request(), never)).toMatchObject({ outcome: "timed_out" });
    const [one] = await decided();
    expect(one).toMatchObject({ outcome: "timed_out", by: null });
    await expect(decideApproval(stateDir, one?.id ?? "", yes)).rejects.toMatchObject({ code: "ALREADY_DECIDED" });
  });

  it("is not there while a program answers at once, and is there if it does not", async () => {
    const quick = shared(callbackApprover(() => "once", { timeoutMs: 60_000 }));
    expect(await quick.decide(request(), never)).toMatchObject({ outcome: "approved" });
    expect(await decided()).toEqual([]);
    const slow = shared(callbackApprover(() => new Promise(() => {}), { timeoutMs: 60_000 }));
    const decision = slow.decide(request(), never);
    await expect.poll(waiting).toHaveLength(1);
    await decideApproval(stateDir, (await only()).id, yes);
    expect(await decision).toMatchObject({ outcome: "approved", by: "ann" });
  });

  it("offers no answer that would last where others use the same session", async () => {
    void approver({ onceOnly: true }).decide(request(), never);
    const { id, answers } = await only();
    expect(answers).toEqual(["once", "no"]);
    await expect(decideApproval(stateDir, id, { ...yes, answer: "tree" })).rejects.toMatchObject({
      code: "WRONG_ANSWER",
    });
    expect(await approver({ onceOnly: true }).decide(request({ lastingOnly: true }), never)).toMatchObject({
      ...{ outcome: "denied", unasked: true },
    });
  });

  it("takes a directory only if it was offered", async () => {
    const grant = { operations: ["grant_read"], paths: ["/home/a/b"], directory: "/home/a/b", wider: ["/home/a"] };
    const decision = approver().decide(request(grant as Partial<ApprovalRequest>), never);
    const { id } = await only();
    for (const directory of ["/", "/home", "/home/a/b/../.."])
      await expect(decideApproval(stateDir, id, { ...yes, directory })).rejects.toMatchObject({ code: "WRONG_ANSWER" });
    await decideApproval(stateDir, id, { ...yes, directory: "/home/a" });
    expect(await decision).toMatchObject({ outcome: "approved", directory: "/home/a" });
  });
});

const textOf = (path: string): string => {
  try {
    return readFileSync(path, "utf8");
  } catch {
    return "";
  }
};

describe("the folder of the inbox", () => {
  it("keeps the newest 500 that were decided, and removes drafts of killed processes", async () => {
    const place = folder();
    place.make();
    const asked = {
      project: PROJECT,
      askedAt: "2026-01-01T00:00:00.000Z",
      at: "board" as const,
      answers: [],
      timeoutMs: null,
    };
    for (let index = 0; index < 560; index += 1) {
      const posted = place.post({ ...asked, question: { ...request(), runs: 1, waiting: [] } });
      if (posted === null) throw new Error("it was not posted");
      const { id, digest } = posted;
      const end = { decidedAt: new Date().toISOString(), outcome: "denied", scope: null, directory: null } as const;
      place.end(id, { digest, ...end, by: `p${index}`, via: "command" });
    }
    await writeFile(join(dir(), `draft.${"0".repeat(16)}`), "half a line");
    const old = new Date(Date.now() - 3_600_000);
    await utimes(join(dir(), `draft.${"0".repeat(16)}`), old, old);
    place.tidy();
    const names = await readdir(dir());
    expect(names.filter((name) => name.endsWith(".end"))).toHaveLength(500);
    expect(names).toHaveLength(1000);
  });

  it("ends a question that cannot be read, unless a process that lives has asked it", async () => {
    const [gone, alive] = [board(dead()), board()];
    // In this order: who opens the inbox ends what others left.
    void approver({}, alive).decide(request(), never);
    void approver({}, gone).decide(request(), never);
    const names = (await readdir(dir())).filter((name) => name.endsWith(".question"));
    for (const name of names)
      await writeFile(join(dir(), name), (await readFile(join(dir(), name), "utf8")).replace("+new", "+old"));
    await writeFile(join(dir(), `${"a".repeat(12)}.question`), "half a line");
    await mkdir(join(dir(), `${"b".repeat(12)}.question`));
    expect(folder().waiting()).toHaveLength(4);
    folder().tidy();
    expect(folder().waiting()).toHaveLength(1);
    expect(folder().ended()).toHaveLength(3);
    expect(await waiting()).toEqual([]);
  });

  it("takes no more than 1000 questions that wait, and none that is too large", async () => {
    const place = folder();
    place.make();
    const asked = {
      project: PROJECT,
      askedAt: "2026-01-01T00:00:00.000Z",
      at: "board" as const,
      answers: [],
      timeoutMs: null,
    };
    const post = (more = {}) => place.post({ ...asked, question: { ...request(more), runs: 1, waiting: [] } });
    expect(post({ diff: "x".repeat(9 * 1024 ** 2) })).toBeNull();
    for (let index = 0; index < 1000; index += 1) expect(post()).not.toBeNull();
    expect(post()).toBeNull();
    expect(await approver().decide(request(), never)).toMatchObject({ outcome: "denied", unasked: true });
  });

  it("is watched only while a question waits", async () => {
    const fds = await readdir("/proc/self/fdinfo");
    const watches = () => fds.flatMap((fd) => textOf(`/proc/self/fdinfo/${fd}`).match(/^inotify wd:/gm) ?? []).length;
    const before = watches();
    const stop = new AbortController();
    const one = approver().decide(request(), stop.signal);
    expect(watches()).toBe(before + 1);
    stop.abort();
    await one.catch(() => {});
    await expect.poll(watches).toBe(before);
  });

  it("is refused as the folder of another one, and the question is asked without it", async () => {
    const elsewhere = await mkdtemp(join(tmpdir(), "corral-elsewhere-"));
    await mkdir(join(stateDir, "inbox"));
    await symlink(elsewhere, dir());
    const local = approver({ ...asks(), ask: async () => "once" });
    expect(await local.decide(request(), never)).toMatchObject({ outcome: "approved" });
    expect(troubles.splice(0).map(({ message }) => message)).toEqual([expect.stringContaining("must be a directory")]);
    expect(await readdir(elsewhere)).toEqual([]);
    await rm(elsewhere, { recursive: true });
  });
});

describe("a forged answer", () => {
  const question = async () => {
    const decision = approver().decide(request(), never);
    return { decision, ...(await only()) };
  };
  const path = (id: string, kind: "end" | "question") => join(dir(), `${id}.${kind}`);

  it("that Corral did not seal denies", async () => {
    const { decision, id, digest } = await question();
    const end = { digest, decidedAt: "now", outcome: "approved", scope: "tree", by: "eve", via: "command" };
    await writeFile(path(id, "end"), `${"0".repeat(64)}\n${JSON.stringify(end)}\n`);
    expect(await decision).toMatchObject({
      outcome: "denied",
      reason: expect.stringContaining("not sealed by Corral"),
    });
    await expect(showApproval(stateDir, id)).rejects.toMatchObject({ code: "UNKNOWN_APPROVAL" });
  });

  it("that was given to another question before denies", async () => {
    const first = await question();
    await decideApproval(stateDir, first.id, yes);
    expect(await first.decision).toMatchObject({ outcome: "approved" });
    const second = await question();
    await copyFile(path(first.id, "end"), path(second.id, "end"));
    expect(await second.decision).toMatchObject({ outcome: "denied" });
  });

  it("about another digest denies, even with the seal", async () => {
    const { decision, id } = await question();
    const end = { decidedAt: "now", outcome: "approved", scope: "once", directory: null } as const;
    folder().end(id, { digest: "0".repeat(64), ...end, by: "eve", via: "command" });
    expect(await decision).toMatchObject({ outcome: "denied" });
  });

  it("of more than was offered denies, even with the seal", async () => {
    const { decision, id, digest } = await question();
    const end = { decidedAt: "now", outcome: "approved", scope: "session", directory: null } as const;
    folder().end(id, { digest, ...end, by: "eve", via: "command" });
    expect(await decision).toMatchObject({ outcome: "denied" });
  });

  it("that is a link to an approval denies", async () => {
    const first = await question();
    await decideApproval(stateDir, first.id, yes);
    await first.decision;
    const { decision, id } = await question();
    await symlink(path(first.id, "end"), path(id, "end"));
    expect(await decision).toMatchObject({ outcome: "denied" });
  });

  it("to a question that was changed after it was asked is not possible", async () => {
    const { decision, id, digest } = await question();
    const text = await readFile(path(id, "question"), "utf8");
    await writeFile(path(id, "question"), text.replace("+new", "+old"));
    await expect(decideApproval(stateDir, id, { ...yes, digest })).rejects.toMatchObject({ code: "UNKNOWN_APPROVAL" });
    expect(await waiting()).toEqual([]);
    await writeFile(path(id, "question"), text);
    await decideApproval(stateDir, id, { ...yes, digest });
    expect(await decision).toMatchObject({ outcome: "approved" });
  });

  it("to a question in the folder of another project is not possible", async () => {
    const { id } = await question();
    const other = board(currentOwner(), "/projects/b");
    void approver({}, other).decide(request(), never);
    await copyFile(path(id, "question"), join(dir("/projects/b"), `${"f".repeat(12)}.question`));
    await copyFile(path(id, "question"), join(dir("/projects/b"), `${id}.question`));
    const seen = await listApprovals(stateDir, { state: "waiting", projects: ["/projects/b"] });
    expect(seen.map(({ project }) => project)).toEqual(["/projects/b"]);
  });
});
