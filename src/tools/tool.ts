import type { z } from "zod";
import type { ToolName } from "../declarations/worker/tool-names.ts";
import type { Hands } from "./hands.ts";

/**
 * One thing that an LLM, a person or a command worker can do under a sandbox. Defined once, here; every face (the run's
 * socket, `corral tool`, agents, MCP, the library) takes its name, description and schema from the definition.
 *
 * Descriptions speak of files and directories only: what a project has is found out with `list_files`.
 */
export interface Tool<Schema extends z.ZodType = z.ZodType> {
  readonly name: ToolName;
  /** For people. */
  readonly title: string;
  readonly description: string;
  readonly input: Schema;
  /** What of a worker's abilities it uses: without them it is not offered. */
  readonly uses: "files" | "exec" | "calls" | "git";
  readonly effects: ToolEffects;
  /** Throws `SandboxError` or {@link ToolRefusal} to refuse; anything else is a bug or trouble with the engine. */
  run(input: z.output<Schema>, hands: Hands, signal: AbortSignal): Promise<ToolOutput>;
}

/** What its use can do at most, in the sense of MCP's tool annotations: a client decides by them what to ask a person. */
export interface ToolEffects {
  /** It changes nothing. */
  readonly readOnly: boolean;
  /** Something that was there may be gone or other afterwards; false: it only adds. */
  readonly destructive: boolean;
  /** Used once more with the same input, it changes nothing further. */
  readonly idempotent: boolean;
  /** It may reach beyond the machine, as far as its worker may. */
  readonly openWorld: boolean;
}

/** What a tool answers: a text that an LLM reads, and the same as data for a program. */
export interface ToolOutput {
  readonly text: string;
  readonly data: Readonly<Record<string, unknown>>;
  readonly image?: { readonly mimeType: string; readonly base64: string };
}

/** A refusal that is none of a file's: consent that was not given, a command that may not run. */
export class ToolRefusal extends Error {
  override readonly name = "ToolRefusal";
  readonly code: string;
  readonly data: Readonly<Record<string, unknown>>;

  constructor(code: string, message: string, data: Readonly<Record<string, unknown>> = {}) {
    super(message);
    this.code = code;
    this.data = data;
  }
}

/** Keeps the schema's type in the definition. */
export function defineTool<Schema extends z.ZodType>(tool: Tool<Schema>): Tool<Schema> {
  return tool;
}
