import { describe, expect, it } from "vitest";
import type { AgentEvent, AgentTool, AgentToolAnswer } from "../../src/agent/events.ts";
import { type AgentTask, runAgent } from "../../src/agent/loop.ts";
import { type ScriptedAnswer, ScriptModel } from "../../src/agent/open-script.ts";
import { type LanguageModel, type ModelRequest, type ModelStream, Spending } from "../../src/agent/spending.ts";
import { Transcript, type TranscriptEntry } from "../../src/agent/transcript.ts";

type Call = readonly [tool: string, input?: unknown];

const answers = (say: string, ...calls: readonly Call[]): ScriptedAnswer => ({
  say,
  calls: calls.map(([tool, input = {}]) => ({ tool, input })),
  usage: { input: 10, output: 5 },
});

const done = (text: string): AgentToolAnswer => ({ ok: true, code: null, text });

function tool(name: string, run: AgentTool["run"] = async () => done(name), parallel = false): AgentTool {
  return { name, description: `Does ${name}.`, inputSchema: { type: "object" }, parallel, run };
}

/** What the model was asked, beside what it says. */
class AskedScript extends ScriptModel {
  readonly asked: ModelRequest[] = [];

  override async doStream(request: ModelRequest): Promise<ModelStream> {
    // As it is now: the conversation goes on.
    this.asked.push({ ...request, prompt: structuredClone(request.prompt) });
    return await super.doStream(request);
  }
}

interface Around extends Partial<Omit<AgentTask, "transcript" | "emit" | "opened">> {
  readonly model?: LanguageModel;
  readonly signal?: AbortSignal;
}

async function ran(script: readonly ScriptedAnswer[], { model: own, signal, ...around }: Around = {}) {
  const model = new AskedScript("s.yaml", script);
  const events: AgentEvent[] = [];
  const entries: TranscriptEntry[] = [];
  const spending = around.spending ?? new Spending("a", { steps: 20, tokens: 1_000_000, costUsd: null }, null);
  const task: AgentTask = {
    opened: {
      name: "script/s",
      model: own ?? model,
      images: "never",
      price: null,
      redact: (text) => text,
      redactPieces: () => ({ add: (piece) => piece, end: () => "" }),
      redactValue: (value) => value,
    },
    system: "Be kind.",
    messages: [{ role: "user", content: "Do it." }],
    tools: [],
    mismatch: null,
    transcript: new Transcript(
      async (line) => void entries.push(JSON.parse(line)),
      (text) => text,
    ),
    emit: (event) => void events.push(event),
    patience: { attempts: 2, firstWaitMs: 1, maxWaitMs: 1, maxSilenceMs: 1000 },
    ...around,
    spending,
  };
  const running = runAgent(task, signal ?? new AbortController().signal);
  const ending = await running.then(
    (value) => ({ ...value, rejected: null }),
    (error: unknown) => ({ text: "", output: null, failure: null, rejected: error }),
  );
  return { ...ending, asked: model.asked, events, entries, spending };
}

const codesIn = (events: readonly AgentEvent[]) =>
  events.flatMap((event) => (event.kind === "called" ? [`${event.tool} ${event.code}`] : []));

describe("an agent's loop", () => {
  it("asks, does, tells, and ends with what the model says when it asks for nothing more", async () => {
    const inputs: unknown[] = [];
    const look = tool("look", async (input) => {
      inputs.push(input);
      return done("a file");
    });
    const script = [answers("I look.", ["look", { at: "/" }]), answers("There is a file.")];
    const { output, text, failure, asked, entries, events, spending } = await ran(script, { tools: [look] });
    expect({ output, text, failure, inputs }).toEqual({
      output: "There is a file.",
      text: "There is a file.",
      failure: null,
      inputs: [{ at: "/" }],
    });
    expect(asked[1]?.prompt.map(({ role }) => role)).toEqual(["system", "user", "assistant", "tool"]);
    expect(JSON.stringify(asked[1]?.prompt.at(-1))).toContain("a file");
    expect(entries.map(({ type }) => type)).toEqual(["answer", "result", "answer"]);
    expect(events).toContainEqual({ kind: "call", id: "call-1-1", tool: "look", input: { at: "/" } });
    expect(events).toContainEqual({ kind: "called", id: "call-1-1", tool: "look", code: null });
    expect(spending).toMatchObject({ steps: 2, used: { input: 20, output: 10 } });
  });

  it("runs neighbours beside each other that change nothing for each other, and all others one by one, in order", async () => {
    const told: string[] = [];
    const slow = (name: string, parallel: boolean) =>
      tool(
        name,
        async () => {
          told.push(`${name} begins`);
          await new Promise((end) => setTimeout(end, 20));
          told.push(`${name} ends`);
          return done(name);
        },
        parallel,
      );
    const tools = [slow("read", true), slow("list", true), slow("write", false)];
    const { entries } = await ran([answers("", ["read"], ["list"], ["write"], ["read"]), answers("Done.")], { tools });
    expect(told.slice(0, 2)).toEqual(["read begins", "list begins"]);
    expect(told.slice(4)).toEqual(["write begins", "write ends", "read begins", "read ends"]);
    const results = entries.flatMap((entry) => (entry.type === "result" ? [entry.tool] : []));
    expect(results).toEqual(["read", "list", "write", "read"]);
  });

  it("runs at most 8 beside each other", async () => {
    let [running, most] = [0, 0];
    const slow = async () => {
      running += 1;
      most = Math.max(most, running);
      await new Promise((end) => setTimeout(end, 5));
      running -= 1;
      return done("read");
    };
    const calls = Array<Call>(20).fill(["read"]);
    const { events } = await ran([answers("", ...calls), answers("")], { tools: [tool("read", slow, true)] });
    expect({ most, running, done: codesIn(events).length }).toEqual({ most: 8, running: 0, done: 20 });
  });

  it("shows no more images than a conversation has room for, the first of them first, and says so", async () => {
    let times = 0;
    const look = tool(
      "look",
      async () => {
        times += 1;
        const base64 = `${times}`.repeat(10 * 1024 * 1024);
        // The later ones of an answer come before the first.
        await new Promise((end) => setTimeout(end, 60 / times));
        return { ...done("An image."), image: { mimeType: "image/png", base64 } };
      },
      true,
    );
    const script = [answers("", ["look"], ["look"]), answers("", ["look"], ["look"]), answers("Done.")];
    const { entries, asked } = await ran(script, { tools: [look] });
    const results = entries.flatMap((entry) => (entry.type === "result" ? [entry] : []));
    expect(results.map(({ image }) => image !== undefined)).toEqual([true, true, true, false]);
    expect(results[3]?.text).toContain("not shown");
    expect(JSON.stringify(asked[2]?.prompt.at(-1))).toContain("not shown");
  });

  it("tells refusals, unknown tools and unreadable inputs to the model, and goes on", async () => {
    const refuses = tool("write", async () => ({ ok: false, code: "PATH_NOT_WRITABLE", text: "Not there." }));
    const { events, asked, output } = await ran([answers("", ["write"], ["nothing"]), answers("I see.")], {
      tools: [refuses],
    });
    expect(codesIn(events)).toEqual(["write PATH_NOT_WRITABLE", "nothing NO_SUCH_TOOL"]);
    const told = JSON.stringify(asked[1]?.prompt.at(-1));
    expect(told).toContain("Not there.");
    expect(told).toContain('There is no tool \\"nothing\\". The tools are: write.');
    expect(output).toBe("I see.");
    expect(codesIn((await ran([answers("", ["x"]), answers("")])).events)).toEqual(["x NO_SUCH_TOOL"]);
  });

  it("does no more calls of one answer than it may, and says so for each of the others", async () => {
    let times = 0;
    const count = tool("count", async () => done(`${++times}`));
    const many = Array.from({ length: 130 }, (): Call => ["count"]);
    const { entries } = await ran([answers("", ...many), answers("Done.")], { tools: [count] });
    const codes = entries.flatMap((entry) => (entry.type === "result" ? [entry.code] : []));
    expect(times).toBe(128);
    expect(codes.filter((code) => code === "TOO_MANY_CALLS")).toHaveLength(2);
  });

  it("takes back an answer that is not as asked three times, and no more", async () => {
    const mismatch = (value: unknown): string | null => (value === 3 ? null : "it must be 3");
    const good = await ran([answers("three"), answers("4"), answers("2"), answers("3")], { mismatch });
    expect(good).toMatchObject({ failure: null, output: 3, text: "3" });
    expect(good.entries.filter(({ type }) => type === "told")).toHaveLength(3);
    const bad = await ran(Array(5).fill(answers("4")), { mismatch });
    expect(bad).toMatchObject({ output: null, failure: { code: "OUTPUT_NOT_VALID" } });
    expect(bad.failure?.message).toContain("it must be 3");
    expect(bad.asked).toHaveLength(4);
  });

  it("ends by its limits before it asks once more, and after it did what was asked of it", async () => {
    let times = 0;
    const count = tool("count", async () => done(`${++times}`));
    const script = Array(9).fill(answers("", ["count"]));
    const limits = { steps: 20, tokens: 1_000_000, costUsd: null };
    const steps = await ran(script, { tools: [count], spending: new Spending("a", { ...limits, steps: 2 }, null) });
    expect([steps.failure?.code, steps.asked.length, times]).toEqual(["STEP_LIMIT", 2, 2]);
    const tokens = await ran(script, { tools: [count], spending: new Spending("a", { ...limits, tokens: 31 }, null) });
    expect([tokens.failure?.code, tokens.asked.length, times]).toEqual(["TOKEN_LIMIT", 3, 5]);
  });

  it("counts by length what nobody counted: instructions, tools and conversation, and an image as one", async () => {
    const script = [{ ...answers("x".repeat(400)), usage: null }];
    const plain = await ran(script);
    expect(plain.spending.used.isEstimated).toBe(true);
    expect(plain.spending.used.output).toBe(100);
    expect(plain.spending.used.input).toBeLessThan(50);
    const system = await ran(script, { system: "y".repeat(4000) });
    expect(system.spending.used.input - plain.spending.used.input).toBeGreaterThan(990);
    const tools = await ran(script, { tools: [{ ...tool("t"), description: "z".repeat(4000) }] });
    expect(tools.spending.used.input - plain.spending.used.input).toBeGreaterThan(990);
    const file = { type: "file" as const, mediaType: "image/png", data: "A".repeat(4_000_000) };
    const image = await ran(script, { messages: [{ role: "user", content: [file] }] });
    expect(image.spending.used.input).toBeLessThan(2000);
    expect(image.spending.used.input).toBeGreaterThan(1400);
  });

  it("rejects with what a tool rejects with, when its neighbours have ended as well", async () => {
    const bug = new Error("a bug");
    let isOver = false;
    const breaks = tool("breaks", async () => Promise.reject(bug), true);
    const slow = tool(
      "slow",
      async () => {
        await new Promise((end) => setTimeout(end, 50));
        isOver = true;
        return done("slow");
      },
      true,
    );
    const { rejected } = await ran([answers("", ["breaks"], ["slow"])], { tools: [breaks, slow] });
    expect(rejected).toBe(bug);
    expect(isOver).toBe(true);
  });

  it("rejects with its signal's reason: before it begins, and after a tool that did not listen", async () => {
    const reason = new Error("enough");
    const before = await ran([answers("x")], { signal: AbortSignal.abort(reason) });
    expect([before.rejected, before.asked.length]).toEqual([reason, 0]);
    const stop = new AbortController();
    const deaf = tool("deaf", async () => {
      stop.abort(reason);
      return done("deaf");
    });
    const after = await ran([answers("", ["deaf"], ["deaf"]), answers("x")], { tools: [deaf], signal: stop.signal });
    expect([after.rejected, after.asked.length]).toEqual([reason, 1]);
    expect(after.events.map(({ kind }) => kind).filter((kind) => kind !== "text")).toEqual(["step", "call"]);
  });

  it("ends truthfully where the script has nothing more to say", async () => {
    const { failure, text } = await ran([answers("I look.", ["x"])]);
    expect(failure?.code).toBe("SCRIPT_FAILED");
    expect(text).toBe("I look.");
  });

  it("asks no more once the conversation is longer than any model takes, whatever its provider counts", async () => {
    const chatty = tool("chatty", async () => done("x".repeat(150_000)));
    const reads = Array.from({ length: 128 }, (): Call => ["chatty"]);
    const { failure, asked } = await ran(Array(5).fill(answers("", ...reads)), { tools: [chatty] });
    expect(failure).toMatchObject({
      code: "MODEL_REFUSED",
      message: expect.stringContaining("more than any model accepts"),
    });
    expect(asked).toHaveLength(2);
  });

  it("takes no answer that asks for more calls than anybody could be told of", async () => {
    const calls = (count: number) => answers("", ...Array.from({ length: count }, (): Call => ["none"]));
    expect((await ran([calls(10_001)])).failure?.code).toBe("ANSWER_TOO_LARGE");
    const { failure, events } = await ran([calls(10_000), answers("x")]);
    expect([failure, codesIn(events).length]).toEqual([null, 10_000]);
  });

  it("stops taking an answer that never ends, and does nothing of it", async () => {
    const piece = "x".repeat(1_000_000);
    let pieces = 0;
    const endless = new ScriptModel("s", []);
    endless.doStream = async () => ({
      stream: new ReadableStream({
        start: (controller) => controller.enqueue({ type: "text-start", id: "1" }),
        pull(controller) {
          pieces += 1;
          controller.enqueue({ type: "text-delta", id: "1", delta: piece });
        },
      }),
    });
    const { failure } = await ran([], { model: endless });
    expect(failure?.code).toBe("ANSWER_TOO_LARGE");
    expect(pieces).toBeLessThan(30);
  });
});
