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
