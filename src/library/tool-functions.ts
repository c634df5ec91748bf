import { dynamicTool, jsonSchema } from "ai";
import type { z } from "zod";
import type { AgentTool, AgentToolAnswer } from "../agent/events.ts";
import { modelOutput } from "../agent/loop.ts";
import { TOOL_NAMES, type ToolName } from "../declarations/worker/tool-names.ts";
import type { OnOutput } from "../run/session/exec-command.ts";
import type { Session } from "../run/session/session.ts";
import type { ToolResult } from "../tools/tool.ts";
import type { ToolDefinitions } from "../tools/toolbox.ts";

/** Passes a command's output to the program's callback, which may fail. The code below this must not see that failure. */
class OutputListener {
  readonly #onOutput: OnOutput;
  readonly #failure = new AbortController();

  constructor(onOutput: OnOutput) {
    this.#onOutput = onOutput;
  }

  /** Aborted with the callback's first error. The callback receives nothing after that. */
  get failed(): AbortSignal {
    return this.#failure.signal;
  }

  readonly hear: OnOutput = (stream, chunk) => {
    if (this.failed.aborted) return undefined;
    try {
      const taken = this.#onOutput(stream, chunk);
      return taken === undefined ? undefined : Promise.resolve(taken).catch(this.#fail);
    } catch (error) {
      this.#fail(error);
      return undefined;
    }
  };

  readonly #fail = (error: unknown): void => {
    // Without a reason, the signal would use its default reason.
    this.#failure.abort(error ?? new Error("`onOutput` failed without an error"));
  };
}

type SchemaInputs = { readonly [Name in ToolName]: z.input<ToolDefinitions[Name]["input"]> };

/** The input of each tool, from its schema. A field with a default is optional. Of a program, `write_file` takes bytes, too. */
export type ToolInputs = Omit<SchemaInputs, "write_file"> & {
  readonly write_file: Omit<SchemaInputs["write_file"], "content"> & { readonly content: string | Uint8Array };
};

export interface ToolCallOptions {
  /** Cancels the call; the answer is then `CANCELLED`. */
  readonly signal?: AbortSignal;
  /**
   * For `exec`: receives each piece of output as it comes. If it returns a promise, the command waits until that settles. If it
   * throws or rejects, Corral ends the command, and the call rejects with the first such error.
   */
  readonly onOutput?: OnOutput;
}

/**
 * One tool as a function. A refusal is an answer, `{ ok: false, code, message }`. It rejects for bugs, for errors of the engine,
 * and if `onOutput` fails.
 */
export type ToolFunction<Name extends ToolName> = (
  input: ToolInputs[Name],
  options?: ToolCallOptions,
) => Promise<ToolResult>;

/** Every tool by its name. Tools that the worker may not use can be called too, and answer `TOOL_NOT_OFFERED`. */
export type ToolFunctions = { readonly [Name in ToolName]: ToolFunction<Name> };

/** The tools of `offered` are its own properties. The others are not listed; calling one is refused. */
export function toolFunctions(offered: readonly ToolName[], session: Pick<Session, "runTool">): ToolFunctions {
  const functionsOf = (names: readonly ToolName[]) =>
    Object.fromEntries(
      names.map((name) => [
        name,
        async (given: unknown, { signal = NEVER, onOutput }: ToolCallOptions = {}) => {
          const input = name === "write_file" ? withBytes(given) : given;
          if (onOutput === undefined) return await session.runTool(name, input, signal);
          const listener = new OutputListener(onOutput);
          const stopped = AbortSignal.any([signal, listener.failed]);
          const result = await session.runTool(name, input, stopped, listener.hear);
          listener.failed.throwIfAborted();
          return result;
        },
      ]),
    );
  const refused = functionsOf(TOOL_NAMES.filter((name) => !offered.includes(name)));
  return Object.assign(Object.create(refused), functionsOf(offered));
}

function withBytes(input: unknown): unknown {
  const { content } = Object(input) as { readonly content?: unknown };
  if (!(content instanceof Uint8Array)) return input;
  return { ...(input as object), content: Buffer.from(content).toString("base64"), encoding: "base64" };
}

const NEVER = new AbortController().signal;

/**
 * Starts calls in the order in which they came: calls that change nothing run in parallel, every other call runs alone. The
 * loop of `ai` starts all calls of one answer at once, but a model that writes a file and then runs it means that order.
 */
export class Turns {
  /** The last call that runs alone. */
  #alone: Promise<unknown> = Promise.resolve();
  /** The calls that started after it. */
  readonly #beside = new Set<Promise<unknown>>();

  async take<T>(isAlone: boolean, act: () => Promise<T>): Promise<T> {
    const before = isAlone ? Promise.allSettled([this.#alone, ...this.#beside]) : this.#alone;
    const turn = before.then(act);
    const ended = turn.then(
      () => {},
      () => {},
    );
    if (isAlone) {
      this.#alone = ended;
      this.#beside.clear();
    } else {
      this.#beside.add(ended);
      void ended.then(() => this.#beside.delete(ended));
    }
    return await turn;
  }
}

/** One of a worker's tools, as the `ai` package takes it. Its output is an {@link AiToolOutput}. */
export type AiTool = ReturnType<typeof dynamicTool>;

/** A tool's answer, as `ai` passes it to the program. A refusal is an answer; the model gets it as an error. */
export type AiToolOutput = AgentToolAnswer;

/** How a model receives an image that a tool returned. */
export type ToolImages = "in the result" | "never";

/**
 * The tools that the worker's own model would have, for `generateText`, `streamText` and `ToolLoopAgent`. Corral checks their
 * input itself, so that the model gets Corral's own error for a wrong input.
 */
export function aiTools(tools: readonly AgentTool[], images: ToolImages): Readonly<Record<string, AiTool>> {
  const turns = new Turns();
  return Object.fromEntries(tools.map((tool) => [tool.name, aiTool(tool, turns, images)]));
}

function aiTool(
  { description, inputSchema, parallel, hasOutput = false, run }: AgentTool,
  turns: Turns,
  images: ToolImages,
): AiTool {
  const used = async (input: unknown, signal: AbortSignal, onOutput?: OnOutput): Promise<AiToolOutput> => {
    try {
      return await turns.take(!parallel, () => run(input, signal, onOutput));
    } catch (error) {
      signal.throwIfAborted();
      throw new Error(FAILED, { cause: error });
    }
  };
  return dynamicTool({
    description,
    inputSchema: jsonSchema(inputSchema),
    execute: (input, { abortSignal = NEVER }) =>
      hasOutput ? streamed((onOutput) => used(input, abortSignal, onOutput)) : used(input, abortSignal),
    toModelOutput: ({ output }) => modelOutput(output as AiToolOutput, images),
  });
}

const SHOWN_CHARS = 16_000;
const PAUSE_MS = 100;

/** While a command runs, answers with the end of what it has printed so far; `ai` takes the last answer as the tool's own, and the others as preliminary. */
async function* streamed(use: (onOutput: OnOutput) => Promise<AiToolOutput>): AsyncGenerator<AiToolOutput> {
  const decoders = { stdout: new TextDecoder(), stderr: new TextDecoder() };
  let text = "";
  let news = Promise.withResolvers<void>();
  const used = use((stream, chunk) => {
    text = (text + decoders[stream].decode(chunk, { stream: true })).slice(-SHOWN_CHARS);
    news.resolve();
    return undefined;
  });
  const over = used.then(
    () => true,
    () => true,
  );
  while (!(await Promise.race([over, news.promise]))) {
    news = Promise.withResolvers();
    yield { ok: true, code: null, text: text.toWellFormed() };
    await Promise.race([over, new Promise((resolve) => setTimeout(resolve, PAUSE_MS))]);
  }
  yield await used;
}

/** `ai` sends a thrown message to the model, and an error of the engine may contain host paths. The program gets it as `cause`. */
const FAILED = "The tool failed for a reason outside of this sandbox.";
