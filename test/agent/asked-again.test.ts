import { describe, expect, it } from "vitest";
import { askAgain, type RetryDelays } from "../../src/agent/asked-again.ts";
import type { AgentEvent, AgentFailure } from "../../src/agent/events.ts";
import { APIS, openedAt } from "./provider-apis.ts";
import type { Behaviour, ModelTurn } from "./servers/behaviour.ts";
import type { Behaviours } from "./servers/model-server.ts";

/** Nobody is silent for so long, on a machine that is busy with other tests. */
const QUICK: RetryDelays = { attempts: 3, firstWaitMs: 40, maxWaitMs: 2000, maxSilenceMs: 20_000 };
const HASTY: RetryDelays = { ...QUICK, maxSilenceMs: 300 };
const LONG: ModelTurn = { text: "I begin to say something that never comes to its end, whatever it would have been." };
const HELLO: Behaviour = { type: "turn", turn: { text: "Hello." } };
const DOWN: Behaviour = { type: "status", status: 500 };

describe.each(APIS)("asking a model of $api again", (spoken) => {
  async function asked(
    behaviours: Behaviours,
    patience = QUICK,
    signal = new AbortController().signal,
    spent: () => AgentFailure | null = () => null,
  ) {
    await using server = await spoken.serve(behaviours);
    const opened = await openedAt(spoken, server.url, { key: "sk-1" });
    const events: AgentEvent[] = [];
    const lost: number[] = [];
    const listener = {
      emit: (event: AgentEvent) => void events.push(event),
      lost: (count: number) => void lost.push(count),
      spent,
    };
    const messages = [{ role: "user" as const, content: "Hello" }];
    const begunAt = performance.now();
    const outcome = await askAgain({ opened, system: "Be kind.", messages, tools: [] }, patience, listener, signal);
    const waits = events.flatMap((event) => (event.kind === "retry" ? [event.waitMs] : []));
    return { outcome, waits, lost, tookMs: performance.now() - begunAt, requests: server.requests.length, events };
  }

  it("waits longer each time, and not the same as others, and then gives up", async () => {
    const { outcome, waits, requests, tookMs } = await asked(() => DOWN);
    expect(outcome).toMatchObject({ ok: false, failure: { code: "MODEL_UNAVAILABLE" } });
    expect(requests).toBe(3);
    const [first = 0, second = 0] = waits;
    expect(first).toBeGreaterThanOrEqual(30);
    expect(first).toBeLessThanOrEqual(50);
    expect(second).toBeGreaterThanOrEqual(60);
    expect(second).toBeLessThanOrEqual(100);
    expect(tookMs).toBeGreaterThan(first + second - 5);
  });

  it("ends where a limit is used up by then, without a wait", async () => {
    const limit: AgentFailure = { code: "TOKEN_LIMIT", message: "It is used up." };
    let failures = 0;
    const spent = () => (++failures < 2 ? null : limit);
    const { outcome, waits, requests } = await asked(() => DOWN, QUICK, undefined, spent);
    expect(outcome).toEqual({ ok: false, failure: limit });
    expect({ waits: waits.length, requests }).toEqual({ waits: 1, requests: 2 });
  });

  it.each<[Record<string, string>, number]>([
    [{ "retry-after-ms": "250" }, 250],
    [{ "retry-after": "1" }, 1000],
    [{ "retry-after-ms": "1" }, 30],
  ])("waits at least as long as the provider asks for by %j", async (headers, atLeastMs) => {
    const { outcome, waits } = await asked([{ type: "status", status: 429, headers }, HELLO]);
    expect(outcome).toMatchObject({ ok: true, answer: { text: "Hello." } });
    expect(waits[0]).toBeGreaterThanOrEqual(atLeastMs);
    expect(waits[0]).toBeLessThan(atLeastMs + 50);
  });

  it("waits for a date", async () => {
    const date = new Date(Date.now() + 1900).toUTCString();
    const { outcome, waits } = await asked([{ type: "status", status: 503, headers: { "retry-after": date } }, HELLO]);
    expect(outcome.ok).toBe(true);
    // A date has whole seconds.
    expect(waits[0]).toBeGreaterThan(500);
    expect(waits[0]).toBeLessThanOrEqual(2000);
  });

  it("does not wait at all where it is asked to wait longer than anybody does", async () => {
    const { outcome, waits, requests } = await asked(() => ({
      type: "status",
      status: 429,
      headers: { "retry-after": "3" },
    }));
    expect(outcome).toMatchObject({ ok: false, failure: { code: "MODEL_UNAVAILABLE", retryAfterMs: 3000 } });
    expect({ waits, requests }).toEqual({ waits: [], requests: 1 });
  });

  it("does not ask again what was refused", async () => {
    const { outcome, requests } = await asked(() => ({ type: "status", status: 401 }));
    expect(outcome).toMatchObject({ ok: false, failure: { code: "MODEL_REFUSED" } });
    expect(requests).toBe(1);
  });

  it("tells that what was said is void, and how much of it was lost", async () => {
    const { events, lost } = await asked([{ type: "cut", after: 20, turn: LONG }, DOWN, HELLO]);
    const kinds = events.map(({ kind }) => kind).filter((kind, at, all) => kind !== all[at - 1]);
    expect(kinds).toEqual(["text", "retry", "text"]);
    const pieces = events.flatMap((event) => (event.kind === "text" ? [event.piece] : []));
    expect(pieces.join("")).toMatch(/^I beg.*Hello\.$/);
    expect(lost).toEqual([pieces.join("").length - "Hello.".length]);
  });

  it("hangs up on silence, before an answer and within it, and asks again", async () => {
    const { outcome, waits, tookMs } = await asked(
      [{ type: "hang" }, { type: "stall", after: 9, turn: LONG }, HELLO],
      HASTY,
    );
    expect(outcome).toMatchObject({ ok: true, answer: { text: "Hello." } });
    expect(waits).toHaveLength(2);
    expect(tookMs).toBeGreaterThan(600);
    const never = await asked(() => ({ type: "hang" }), { ...HASTY, attempts: 1 });
    expect(never.outcome).toMatchObject({ failure: { message: "The model sent nothing for 300ms." } });
  });

  it("counts what came of a call's input, where the answer broke off within it", async () => {
    const calls = [{ name: "write", input: { text: "long ".repeat(2000) } }];
    const { lost } = await asked([{ type: "cut", after: 40, turn: { calls } }, HELLO]);
    expect(lost).toHaveLength(1);
    expect(lost[0]).toBeGreaterThan(20);
    expect(lost[0]).toBeLessThan(500);
  });

  it("lets a bug of whoever hears it through, which says nothing of the provider, and asks no more", async () => {
    const bug = new TypeError("x is not a function");
    await using server = await spoken.serve(() => HELLO);
    const opened = await openedAt(spoken, server.url);
    const question = { opened, system: "", messages: [{ role: "user" as const, content: "Hello" }], tools: [] };
    const emit = ({ kind }: AgentEvent) => {
      if (kind === "text") throw bug;
    };
    const asking = askAgain(question, QUICK, { emit, lost: () => {}, spent: () => null }, new AbortController().signal);
    await expect(asking).rejects.toBe(bug);
    expect(server.requests).toHaveLength(1);
  });

  it("ends at once by its signal, also while it waits, with the signal's reason", async () => {
    const reason = new Error("enough");
    const stop = new AbortController();
    setTimeout(() => stop.abort(reason), 100);
    const begunAt = performance.now();
    const waiting = asked(() => DOWN, { ...QUICK, firstWaitMs: 60_000, maxWaitMs: 60_000 }, stop.signal);
    await expect(waiting).rejects.toBe(reason);
    const within = asked(() => ({ type: "stall", after: 9, turn: LONG }), QUICK, AbortSignal.timeout(50));
    await expect(within).rejects.toMatchObject({ name: "TimeoutError" });
    // A third of the wait that it left.
    expect(performance.now() - begunAt).toBeLessThan(20_000);
  });
});
