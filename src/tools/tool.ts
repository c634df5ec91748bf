import { z } from "zod";
import type { ToolName } from "../declarations/worker/tool-names.ts";
import type { Hands } from "./hands.ts";

/** For the main path of a tool. */
export const PATH_RULE = "Absolute, or relative to the working directory.";

/** A path as an LLM writes it. `what` describes it. */
export const pathField = (what: string) => z.string().min(1).max(4096).describe(what);

/** A commit as `git_stage` returned it. */
export const commitField = z
  .string()
  .regex(/^[0-9a-f]{40}$/)
  .describe("The commit's full hash, as returned by `git_stage`.");

/** Text that becomes content of a file. */
export const contentField = (what: string) => z.string().max(50_000_000).describe(what);

/**
 * One operation that an LLM, a person or a command worker can do under a sandbox. Every face (the run's socket,
 * `corral tool`, agents, MCP, the library) takes name, description and schema from this one definition.
 *
 * Descriptions name no directory of a project: `list_files` shows those.
 */
export interface Tool<Schema extends z.ZodType = z.ZodType, Name extends ToolName = ToolName> {
  readonly name: Name;
  /** For people. */
  readonly title: string;
  readonly description: string;
  readonly input: Schema;
  /** The ability of a worker that the tool needs; a worker without it is not offered the tool. */
  readonly uses: "files" | "exec" | "calls" | "git" | "access";
  /** The fields of the input that are paths, and the access that each needs: a refusal there can become a request for it. */
  readonly paths: Readonly<Record<string, "read" | "write">>;
  readonly effects: ToolEffects;
  /** Throws `SandboxError` or {@link ToolRefusal} to refuse; any other error is a bug or an engine error. */
  run(input: z.output<Schema>, hands: Hands, signal: AbortSignal): Promise<ToolOutput>;
}

/** The strongest effects of a tool, in the sense of MCP's tool annotations: clients decide by them when to ask a person. */
export interface ToolEffects {
  /** It changes nothing. */
  readonly readOnly: boolean;
  /** It may delete or change something that existed; false: it only adds. */
  readonly destructive: boolean;
  /** A second call with the same input changes nothing more. */
  readonly idempotent: boolean;
  /** It may reach beyond this machine, as far as its worker may. */
  readonly openWorld: boolean;
}

/** A refusal that does not come from the files: approval was denied, a command is not allowed. */
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

/** Keeps the schema and the name in the type of the definition. */
export function defineTool<Schema extends z.ZodType, const Name extends ToolName>(
  tool: Tool<Schema, Name>,
): Tool<Schema, Name> {
  return tool;
}

/** A tool's input as JSON Schema (draft 2020-12), from the caller's side: a field with a default may be absent. */
export function inputSchemaOf({ input }: Pick<Tool, "input">): Record<string, unknown> {
  return z.toJSONSchema(input, { io: "input", target: "draft-2020-12" });
}

/** A tool's answer: text for an LLM, and the same as data for a program. */
export interface ToolOutput {
  readonly text: string;
  readonly data: Readonly<Record<string, unknown>>;
  readonly image?: { readonly mimeType: string; readonly base64: string };
}

/** The result of a tool; every face wraps it in its own format. A refusal is a result. */
export type ToolResult =
  | ({ readonly ok: true } & ToolOutput)
  | { readonly ok: false; readonly code: string; readonly message: string; readonly data: ToolOutput["data"] };
