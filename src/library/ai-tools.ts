import { dynamicTool, jsonSchema } from "ai";
import { modelOutput } from "../agent/continued.ts";
import type { AgentTool, AgentToolAnswer } from "../agent/events.ts";

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

function aiTool({ description, inputSchema, parallel, run }: AgentTool, turns: Turns, images: ToolImages): AiTool {
  return dynamicTool({
    description,
    inputSchema: jsonSchema(inputSchema),
    execute: async (input, { abortSignal = NEVER }) => {
      try {
        return await turns.take(!parallel, () => run(input, abortSignal));
      } catch (error) {
        abortSignal.throwIfAborted();
        throw new Error(FAILED, { cause: error });
      }
    },
    toModelOutput: ({ output }) => modelOutput(output as AiToolOutput, images),
  });
}

/** `ai` sends a thrown message to the model, and an error of the engine may contain host paths. The program gets it as `cause`. */
const FAILED = "The tool failed for a reason outside of this sandbox.";

const NEVER = new AbortController().signal;
