import type { CallToolResult } from "@modelcontextprotocol/server";
import type { ToolResult } from "../tools/run-tool.ts";

/** A tool's answer in the protocol's wrapping. A refusal is an answer that a model can act on, and no error of the protocol. */
export function toolAnswer(result: ToolResult, notes: readonly string[] = []): CallToolResult {
  const said = result.ok ? result.text : result.message;
  const text = [said, ...notes.map((note) => `[Note: ${note}]`)].join("\n");
  const content: CallToolResult["content"] = [{ type: "text", text }];
  if (!result.ok) return { content, structuredContent: { ...result.data, code: result.code }, isError: true };
  const { image, data } = result;
  if (image !== undefined) content.push({ type: "image", data: image.base64, mimeType: image.mimeType });
  return { content, structuredContent: { ...data } };
}

/** A refusal of the server's own. */
export function refusedAnswer(code: string, message: string, data: Readonly<Record<string, unknown>> = {}): ToolResult {
  return { ok: false, code, message, data };
}
