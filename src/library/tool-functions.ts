import type { z } from "zod";
import { TOOL_NAMES, type ToolName } from "../declarations/worker/tool-names.ts";
import type { OnOutput } from "../run/session/exec-command.ts";
import type { Session } from "../run/session/session.ts";
import type { ToolResult } from "../tools/tool-result.ts";
import type { ToolDefinitions } from "../tools/toolbox.ts";
import { OutputListener } from "./output-listener.ts";

/** What each tool takes, from its own schema: a field with a default may be left out. */
export type ToolInputs = { readonly [Name in ToolName]: z.input<ToolDefinitions[Name]["input"]> };

/** How one use of a tool runs. */
export interface ToolCallOptions {
  /** Ends it; it then answers `CANCELLED`. */
  readonly signal?: AbortSignal;
  /**
   * Of `exec`: is given each piece of what the command prints as it comes; a promise holds the command back until it has
   * settled. Where it throws or rejects, the command is ended, and the call rejects with the first such error.
   */
  readonly onOutput?: OnOutput;
}

/**
 * One tool as a function. A refusal is an answer, `{ ok: false, code, message }`; it rejects for bugs, for trouble with
 * the engine, and where `onOutput` fails.
 */
export type ToolFunction<Name extends ToolName> = (
  input: ToolInputs[Name],
  options?: ToolCallOptions,
) => Promise<ToolResult>;

/** Every tool by its name. Those that the worker may not use are there as well, and answer `TOOL_NOT_OFFERED`. */
export type ToolFunctions = { readonly [Name in ToolName]: ToolFunction<Name> };

/** The ones that `offered` names are its own properties; the others can be called, and are refused, but not listed. */
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
