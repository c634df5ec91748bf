import type { ModelMessage } from "ai";
import { charactersIn } from "../json/size.ts";
import { askAgain, PATIENCE, type Patience } from "./asked-again.ts";
import type { AgentEvent } from "./events.ts";
import type { AgentFailure, AgentFailureCode } from "./failure.ts";
import { type FinalOutput, finalOutput, type Mismatch } from "./final-output.ts";
import { ImageRoom } from "./image-room.ts";
import type { AgentTool, AgentToolAnswer, Answer, AskedCall, Tokens } from "./messages/conversation.ts";
import type { OpenedModel } from "./opened-model.ts";
import { type AnsweredCall, resultMessages } from "./result-message.ts";
import type { Exhausted, Spending } from "./spending.ts";
import type { Transcript } from "./transcript/transcript.ts";

/** One agent's work: what it is told, what it may use, and how much of it. */
export interface AgentTask {
  readonly opened: OpenedModel;
  readonly system: string;
  /** What its caller wants. */
  readonly messages: readonly ModelMessage[];
  readonly tools: readonly AgentTool[];
  readonly spending: Spending;
  /** Null: the answer is text. Else what of a value is not as asked, or null. */
  readonly mismatch: ((value: unknown, signal: AbortSignal) => ReturnType<Mismatch>) | null;
  readonly transcript: Transcript;
  readonly emit: (event: AgentEvent) => void;
  /** Told of each call that reached no tool: none has its name, its input could not be read, or it is one too many. */
  readonly unmet?: (call: AskedCall, answer: AgentToolAnswer) => void;
  readonly patience?: Patience;
}

/** How an agent ended by itself. `text` is the last that it said. */
export interface AgentEnding {
  readonly text: string;
  /** The text, or the JSON that it is. */
  readonly output: unknown;
  /** Null where it came to an answer. */
  readonly failure: AgentFailure | null;
}

/** How often an agent is told that its answer is not what was asked for. */
const MAX_CORRECTIONS = 3;
const MAX_CALLS_OF_ANSWER = 128;
/** Beside its images: more than any model takes. It is kept here, and told whole with every question. */
const MAX_CONVERSATION_CHARACTERS = 32_000_000;
/** Each may hold as much as a tool reads. */
const MAX_CALLS_BESIDE_EACH_OTHER = 8;

/**
 * Asks the model, does what it asks for, tells it what came of that, and so on until it has nothing more to ask for. It
 * rejects with the reason of `signal`, and for bugs and trouble with the engine.
 */
export async function runAgent(task: AgentTask, signal: AbortSignal): Promise<AgentEnding> {
  const { spending, transcript, emit } = task;
  const messages: ModelMessage[] = [...task.messages];
  let characters = charactersIn(messages);
  const images = new ImageRoom();
  let corrections = 0;
  let text = "";
  const ended = (failure: AgentFailure | null, output: unknown = null): AgentEnding => ({ text, output, failure });
  for (;;) {
    signal.throwIfAborted();
    if (characters > MAX_CONVERSATION_CHARACTERS) return ended(TOO_LONG);
    const exhausted = spending.takeStep();
    if (exhausted !== null) return ended(limitFailure(exhausted));
    emit({ kind: "step", step: spending.steps });

    const question = { ...task, messages };
    const lost = (characters: number): void => count(NOT_COUNTED, characters, question);
    const spent = (): AgentFailure | null => {
      const limit = spending.exhausted();
      return limit && limitFailure(limit);
    };
    const asked = await askAgain(question, task.patience ?? PATIENCE, { emit, lost, spent }, signal);
    if (!asked.ok) return ended({ code: asked.failure.code, message: asked.failure.message });
    const { answer } = asked;
    count(answer.tokens, answer.characters, question);
    const final = await finalOf(answer, task, signal);
    text = final.text;
    await transcript.answer({ ...answer, text });
    messages.push(...answer.messages);
    characters += charactersIn(answer.messages);

    const cut = cutFailure(answer);
    if (cut !== null) return ended(cut);
    if (answer.calls.length === 0) {
      if (final.ok) return ended(null, final.value);
      corrections += 1;
      if (corrections > MAX_CORRECTIONS)
        return ended({
          code: "OUTPUT_NOT_VALID",
          message: `The agent's answer is not what was asked for: ${final.fault}`,
        });
      const correction = `Your answer cannot be taken: ${final.fault}\nAnswer again, with that JSON and nothing else.`;
      await transcript.told(correction);
      messages.push({ role: "user", content: correction });
      continue;
    }
    const answered = await doneCalls(answer.calls, task, images, signal);
    messages.push(...resultMessages(answered, task.opened.images));
    characters += charactersIn(resultMessages(answered, "never"));
  }
}

/** What an answer is, if it is the last. */
async function finalOf(
  { text, calls }: Answer,
  { opened, mismatch }: AgentTask,
  signal: AbortSignal,
): Promise<FinalOutput> {
  if (mismatch === null || calls.length > 0) return { ok: true, text, value: text };
  return await finalOutput(text, (value) => mismatch(value, signal), opened.redactValue);
}

/** Calls go one after another, but for neighbours that change nothing for each other. */
async function doneCalls(
  calls: readonly AskedCall[],
  task: AgentTask,
  images: ImageRoom,
  signal: AbortSignal,
): Promise<AnsweredCall[]> {
  const tools = new Map(task.tools.map((tool) => [tool.name, tool]));
  const answered: AnsweredCall[] = [];
  const isParallel = ({ tool }: AskedCall | undefined = NO_CALL): boolean => tools.get(tool)?.parallel === true;
  for (let next = 0; next < calls.length; ) {
    let end = next + 1;
    if (isParallel(calls[next])) {
      while (end - next < MAX_CALLS_BESIDE_EACH_OTHER && isParallel(calls[end])) end += 1;
    }
    const batch = calls.slice(next, end).map(async (call, offset): Promise<AnsweredCall> => {
      const met = next + offset < MAX_CALLS_OF_ANSWER ? toolFor(call, tools) : TOO_MANY;
      return { call, answer: await doneCall(call, met, task, signal) };
    });
    // Where one rejects, the others have ended as well before that is told.
    await Promise.allSettled(batch);
    // In the order of the calls, whichever came first.
    for (const { call, answer } of await Promise.all(batch)) answered.push({ call, answer: images.admitted(answer) });
    next = end;
  }
  for (const { call, answer } of answered) await task.transcript.result(call, answer);
  return answered;
}

async function doneCall(
  call: AskedCall,
  met: Met,
  { emit, unmet }: AgentTask,
  signal: AbortSignal,
): Promise<AgentToolAnswer> {
  signal.throwIfAborted();
  emit({ kind: "call", id: call.id, tool: call.tool, input: call.input });
  if (!met.ok) unmet?.(call, met.answer);
  const answer = met.ok ? await met.tool.run(call.input, signal) : met.answer;
  signal.throwIfAborted();
  emit({ kind: "called", id: call.id, tool: call.tool, code: answer.code });
  return answer;
}

type Met = { readonly ok: true; readonly tool: AgentTool } | { readonly ok: false; readonly answer: AgentToolAnswer };

function toolFor({ tool: name, fault }: AskedCall, tools: ReadonlyMap<string, AgentTool>): Met {
  const tool = tools.get(name);
  if (tool === undefined) {
    const known = tools.size === 0 ? "There are none" : `There are: ${[...tools.keys()].join(", ")}`;
    return unmetBy("NO_SUCH_TOOL", `There is no tool ${JSON.stringify(name)}. ${known}.`);
  }
  return fault === null ? { ok: true, tool } : unmetBy("BAD_INPUT", `The input of ${name} could not be read: ${fault}`);
}

function unmetBy(code: string, text: string): Met {
  return { ok: false, answer: { ok: false, code, text } };
}

const NO_CALL: AskedCall = { id: "", tool: "", input: null, fault: null };

const TOO_MANY: Met = unmetBy(
  "TOO_MANY_CALLS",
  `At most ${MAX_CALLS_OF_ANSWER} calls are done for one answer. Ask for the rest in the next one.`,
);

/** What the provider did not count is counted by length: some four characters make a token. */
function count(tokens: Tokens, characters: number, { spending, opened, system, messages, tools }: AgentTask): void {
  const asked = [messages, tools.map(({ name, description, inputSchema }) => [name, description, inputSchema])];
  const input = Math.ceil((system.length + JSON.stringify(asked, withoutFiles).length) / CHARACTERS_OF_A_TOKEN);
  spending.add(tokens, { input, output: Math.ceil(characters / CHARACTERS_OF_A_TOKEN) }, opened.price);
}

/** An image is some 1,500 tokens to every provider, however large its file is. */
function withoutFiles(_: string, value: unknown): unknown {
  const isFile = typeof value === "object" && value !== null && "type" in value && value.type === "file";
  return isFile ? " ".repeat(1500 * CHARACTERS_OF_A_TOKEN) : value;
}

const CHARACTERS_OF_A_TOKEN = 4;
/** Of an answer that broke off nobody is told what it used. */
const NOT_COUNTED: Tokens = { input: null, output: null };

function cutFailure({ end }: Answer): AgentFailure | null {
  switch (end) {
    case "length":
      return { code: "ANSWER_CUT", message: "The model's answer was cut, as it was longer than the provider allows." };
    case "declined":
      return { code: "MODEL_DECLINED", message: "The provider held back the model's answer." };
    default:
      return null;
  }
}

const TOO_LONG: AgentFailure = {
  code: "MODEL_REFUSED",
  message: `The conversation has grown to more than ${MAX_CONVERSATION_CHARACTERS} characters, which no model takes.`,
};

const LIMIT_CODES: Readonly<Record<Exhausted["limit"], AgentFailureCode>> = {
  steps: "STEP_LIMIT",
  tokens: "TOKEN_LIMIT",
  cost: "COST_LIMIT",
};

function limitFailure({ limit, text }: Exhausted): AgentFailure {
  return { code: LIMIT_CODES[limit], message: text };
}
