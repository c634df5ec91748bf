import type { z } from "zod";
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

/** The input of each tool, from its schema. A field with a default is optional. */
export type ToolInputs = { readonly [Name in ToolName]: z.input<ToolDefinitions[Name]["input"]> };

/** Options of one tool call. */
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
        async (input: unknown, { signal = NEVER, onOutput }: ToolCallOptions = {}) => {
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

const NEVER = new AbortController().signal;
