import {
  APICallError,
  type JSONSchema7,
  type JSONValue,
  jsonSchema,
  type LanguageModel,
  type ModelMessage,
  StreamProviderError,
  streamText,
  type TextStreamPart,
  type ToolSet,
  tool,
} from "ai";

/** What the input of the tool `say` must be. */
export const SAY_SCHEMA: JSONSchema7 = {
  type: "object",
  properties: { text: { type: "string" } },
  required: ["text"],
  additionalProperties: false,
};

/** A tool that nothing executes: its calls end the stream, as they do for a loop that executes them itself. */
export const TOOLS = {
  say: tool({
    description: "Says a text.",
    inputSchema: jsonSchema<{ text: string }>(SAY_SCHEMA),
  }),
} satisfies ToolSet;

/** What a caller of `streamText` gets to know, by each of the ways it has. */
export interface Heard {
  parts: TextStreamPart<ToolSet>[];
  /** What the iteration of the stream threw. */
  thrown: unknown;
  /** What `onError` was called with. */
  told: unknown[];
  /** What the promise of the text rejected with. */
  rejected: unknown;
  text: string;
}

export interface Asked {
  messages?: ModelMessage[];
  instructions?: string;
  providerOptions?: Record<string, Record<string, JSONValue>>;
  signal?: AbortSignal;
  maxRetries?: number;
}

/** Streams one answer to its end, whichever it is. */
export async function hear(model: LanguageModel, asked: Asked = {}): Promise<Heard> {
  const heard: Heard = { parts: [], thrown: undefined, told: [], rejected: undefined, text: "" };
  const result = streamText({
    model,
    tools: TOOLS as ToolSet,
    messages: asked.messages ?? [{ role: "user", content: "Hello" }],
    maxRetries: asked.maxRetries ?? 0,
    onError: ({ error }) => void heard.told.push(error),
    ...(asked.instructions !== undefined && { instructions: asked.instructions }),
    ...(asked.providerOptions !== undefined && { providerOptions: asked.providerOptions }),
    ...(asked.signal !== undefined && { abortSignal: asked.signal }),
  });
  try {
    for await (const part of result.stream) {
      heard.parts.push(part);
      if (part.type === "text-delta") heard.text += part.text;
    }
  } catch (error) {
    heard.thrown = error;
  }
  await Promise.resolve(result.text).catch((error: unknown) => {
    heard.rejected = error;
  });
  return heard;
}

/** The parts of one type. */
export function partsOf<T extends TextStreamPart<ToolSet>["type"]>(
  { parts }: Heard,
  type: T,
): Extract<TextStreamPart<ToolSet>, { type: T }>[] {
  return parts.filter((part): part is Extract<TextStreamPart<ToolSet>, { type: T }> => part.type === type);
}

/** How an answer ended, in one line: by which way an error came, what it is, and how the text's promise settled. */
export function outcomeOf(heard: Heard): string {
  const [part] = partsOf(heard, "error");
  const [finish] = partsOf(heard, "finish");
  return [
    ...(heard.thrown === undefined ? [] : [`throws ${worded(heard.thrown)}`]),
    ...(part === undefined ? [] : [`reports ${worded(part.error)}`]),
    ...(heard.told.length === 0 ? [] : ["onError"]),
    ...partsOf(heard, "abort").map(({ reason }) => `abort ${reason}`),
    ...(finish === undefined ? [] : [`finish ${finish.finishReason}`]),
    heard.rejected === undefined ? "text resolves" : `text rejects ${(heard.rejected as Error).name}`,
  ].join(", ");
}

function worded(error: unknown): string {
  const status = APICallError.isInstance(error) || StreamProviderError.isInstance(error) ? error : undefined;
  const retry =
    status === undefined ? "" : ` ${status.statusCode ?? "-"} ${status.isRetryable ? "retryable" : "final"}`;
  return `${(error as Error).name}${retry}`;
}
