import { dynamicTool, jsonSchema } from "ai";
import type { AgentTool, AgentToolAnswer } from "../agent/messages/conversation.ts";
import { modelOutput } from "../agent/result-message.ts";
import { Turns } from "./turns.ts";

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
