import { deltas } from "./awkward-pieces.ts";
import { type ModelApi, namedIds, type ReadRequest, type ResolvedTurn, type SentEvent } from "./model-api.ts";
import { isJson, type Json, objects, type SentImage, textOf } from "./recorded-request.ts";

/** `POST /v1/messages`, as Anthropic speaks it. */
export const messages: ModelApi = {
  path: "/v1/messages",
  read,
  objection,
  events,
  whole,
  errorBody: (status, message) => ({ type: "error", error: { type: KINDS[status] ?? "api_error", message } }),
  errorEvent: (code, message) => named({ type: "error", error: { type: code ?? "overloaded_error", message } }),
  headers: (id) => ({ "request-id": `req_${id}` }),
};

/** The type that Anthropic has for a status. */
const KINDS: Record<number, string> = {
  400: "invalid_request_error",
  401: "authentication_error",
  403: "permission_error",
  404: "not_found_error",
  413: "request_too_large",
  429: "rate_limit_error",
  529: "overloaded_error",
};

const STOP_REASONS = {
  stop: "end_turn",
  length: "max_tokens",
  content_filter: "refusal",
  tool_calls: "tool_use",
};

function read(body: Json): ReadRequest {
  const sent = objects(body.messages);
  return {
    messages: sent,
    system: textOf(body.system),
    tools: objects(body.tools).map((tool) => ({
      name: String(tool.name),
      description: tool.description,
      schema: tool.input_schema,
    })),
    images: sent.flatMap(({ content }) => [
      ...imagesOf(content, false),
      ...objects(content).flatMap((part) => (part.type === "tool_result" ? imagesOf(part.content, true) : [])),
    ]),
  };
}

function imagesOf(content: unknown, inToolResult: boolean): SentImage[] {
  return objects(content).flatMap(({ type, source }) =>
    type === "image" && isJson(source) && source.type === "base64"
      ? [{ mediaType: String(source.media_type), base64: String(source.data), inToolResult }]
      : [],
  );
}

/** `max_tokens` must be there, and the very next message must hold a result for each use of a tool, and for nothing else. */
function objection(body: Json): string | undefined {
  if (typeof body.max_tokens !== "number") return "max_tokens: Field required";
  let open = new Set<string>();
  for (const { content } of objects(body.messages)) {
    const parts = objects(content);
    for (const { type, tool_use_id: id } of parts) {
      if (type === "tool_result" && !open.delete(String(id))) {
        return `messages: unexpected \`tool_use_id\` found in \`tool_result\` blocks: ${String(id)}. Each \`tool_result\` block must have a corresponding \`tool_use\` block in the previous message.`;
      }
    }
    if (open.size > 0) break;
    open = new Set(parts.filter(({ type }) => type === "tool_use").map(({ id }) => String(id)));
  }
  if (open.size === 0) return undefined;
  return `messages: \`tool_use\` ids were found without \`tool_result\` blocks immediately after: ${namedIds(open)}. Each \`tool_use\` block must have a corresponding \`tool_result\` block in the next message.`;
}

function events(turn: ResolvedTurn, body: Json, id: string): SentEvent[] {
  const begun = {
    ...whole(turn, body, id),
    content: [],
    stop_reason: null,
    usage: { ...inputUsage(turn), output_tokens: 1 },
  };
  const delta = { stop_reason: STOP_REASONS[turn.finish], stop_sequence: null };
  const blocks = [
    ...(turn.text === "" ? [] : [{ start: { type: "text", text: "" }, deltas: textDeltas(turn.text) }]),
    ...turn.calls.map(({ id: callId, name, arguments: text }) => ({
      start: { type: "tool_use", id: callId, name, input: {} },
      deltas: ["", ...deltas(text)].map((piece) => ({ type: "input_json_delta", partial_json: piece })),
    })),
  ];
  return [
    { type: "message_start", message: begun },
    { type: "ping" },
    ...blocks.flatMap(({ start, deltas: pieces }, index) => [
      { type: "content_block_start", index, content_block: start },
      ...pieces.map((piece) => ({ type: "content_block_delta", index, delta: piece })),
      { type: "content_block_stop", index },
    ]),
    { type: "message_delta", delta, usage: { output_tokens: turn.usage.output } },
    { type: "message_stop" },
  ].map(named);
}

function textDeltas(text: string): Json[] {
  return deltas(text).map((piece) => ({ type: "text_delta", text: piece }));
}

/** In one piece the input of a call is JSON by itself, so arguments that are none arrive as the string they are. */
function whole(turn: ResolvedTurn, body: Json, id: string): Json {
  const content = [
    ...(turn.text === "" ? [] : [{ type: "text", text: turn.text }]),
    ...turn.calls.map(({ id: callId, name, input }) => ({
      type: "tool_use",
      id: callId,
      name,
      input: turn.rawArguments ?? input,
    })),
  ];
  return {
    id: `msg_${id}`,
    type: "message",
    role: "assistant",
    model: body.model,
    content,
    stop_reason: STOP_REASONS[turn.finish],
    stop_sequence: null,
    usage: { ...inputUsage(turn), output_tokens: turn.usage.output },
  };
}

/** Anthropic does not count what it read from the cache among the input's tokens. */
function inputUsage({ usage: { input, cached } }: ResolvedTurn): Json {
  return { input_tokens: input - cached, cache_creation_input_tokens: 0, cache_read_input_tokens: cached };
}

function named(data: Json): SentEvent {
  return { name: String(data.type), data };
}
