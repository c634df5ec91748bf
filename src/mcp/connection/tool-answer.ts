import type { CallToolResult, Tool as ToolDescription } from "@modelcontextprotocol/server";
import type { WorkerDefinition } from "../../declarations/worker/worker.ts";
import { charactersIn } from "../../json/parse-json.ts";
import { describedFor, usefulTools } from "../../run/session/offered-tools.ts";
import { inputSchemaOf, type Tool, type ToolResult } from "../../tools/tool.ts";
import { TOOLS } from "../../tools/toolbox.ts";

/** The SDK's client ends its stdio connection at a message of 10 MiB. */
const MAX_ANSWER_BYTES = 8 * 1024 ** 2;
/** What is kept of a longer answer: of its text, and of each field that is useful by itself. */
const MAX_TEXT_CHARACTERS = 200_000;
const MAX_FIELD_CHARACTERS = 1000;

/** A tool's answer in the protocol's form. A refusal is an answer that a model can act on, not a protocol error. */
export function toolAnswer(result: ToolResult, notes: readonly string[] = []): CallToolResult {
  const whole = wrapped(result, notes);
  return isTooLong(whole) ? wrapped(shortened(result), notes) : whole;
}

/** A refusal of the server's own. */
export function refusedAnswer(code: string, message: string, data: Readonly<Record<string, unknown>> = {}): ToolResult {
  return { ok: false, code, message, data };
}

/** True if the message is longer than clients accept: a worker's output may be many times longer. */
export function isTooLong(answer: unknown): boolean {
  const characters = charactersIn(answer);
  if (characters > MAX_ANSWER_BYTES) return true;
  // In JSON, no character and no number takes more bytes.
  return characters * 32 > MAX_ANSWER_BYTES && Buffer.byteLength(JSON.stringify(answer)) > MAX_ANSWER_BYTES;
}

function wrapped(result: ToolResult, notes: readonly string[]): CallToolResult {
  const said = result.ok ? result.text : result.message;
  const text = [said, ...notes.map((note) => `[Note: ${note}]`)].join("\n");
  const content: CallToolResult["content"] = [{ type: "text", text }];
  if (!result.ok) return { content, structuredContent: { ...result.data, code: result.code }, isError: true };
  const { image, data } = result;
  if (image !== undefined) content.push({ type: "image", data: image.base64, mimeType: image.mimeType });
  return { content, structuredContent: { ...data } };
}

function shortened(result: ToolResult): ToolResult {
  const brief = Object.entries(result.data).filter(([, value]) => isBrief(value));
  const data = { ...Object.fromEntries(brief), cut: true };
  if (!result.ok) return { ...result, message: beginningOf(result.message), data };
  const image = result.image === undefined ? "" : "\n[The image is too large to send.]";
  return { ok: true, text: beginningOf(result.text) + image, data };
}

function isBrief(value: unknown): boolean {
  return typeof value === "string" ? value.length <= MAX_FIELD_CHARACTERS : typeof value !== "object";
}

function beginningOf(text: string): string {
  const left = text.length - MAX_TEXT_CHARACTERS;
  if (left <= 0) return text;
  return `${text.slice(0, MAX_TEXT_CHARACTERS).toWellFormed()}\n[${left} more characters are not shown.]`;
}

/** What a client is told of a tool. */
export type OfferedTool = Pick<Tool, "title" | "description" | "input" | "uses" | "effects"> & {
  readonly name: string;
};

/** The tools that a worker may and can use, by name: all others would be refused. */
export function offeredTools(worker: WorkerDefinition): Map<string, OfferedTool> {
  return new Map(usefulTools(worker).flatMap((name) => entryOf(name)));
}

function entryOf(name: string): [string, OfferedTool][] {
  const tool = TOOLS.get(name);
  return tool === undefined ? [] : [[name, tool]];
}

/** A tool in the protocol's form. `workers`: those of the project; they describe the callable ones. */
export function toolDescription(
  tool: OfferedTool,
  worker: Pick<WorkerDefinition, "calls">,
  workers: ReadonlyMap<string, Pick<WorkerDefinition, "description">>,
): ToolDescription {
  const { name, title, effects } = tool;
  return {
    name,
    title,
    description: describedFor(tool, worker, workers),
    inputSchema: inputSchemaOf(tool) as ToolDescription["inputSchema"],
    annotations: {
      title,
      readOnlyHint: effects.readOnly,
      destructiveHint: effects.destructive,
      idempotentHint: effects.idempotent,
      openWorldHint: effects.openWorld,
    },
  };
}
