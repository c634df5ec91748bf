import { deltas } from "./awkward-pieces.ts";
import { type ModelApi, namedIds, type ReadRequest, type ResolvedTurn, type SentEvent } from "./model-api.ts";
import { openAiErrorBody, openAiHeaders } from "./openai-errors.ts";
import { imageOfDataUrl, type Json, objects, type SentImage, textOf } from "./recorded-request.ts";

/** `POST /v1/responses`: OpenAI's own API, which the default model of `@ai-sdk/openai` speaks. */
export const responses: ModelApi = {
  path: "/v1/responses",
  read,
  objection,
  events,
  whole: (turn, body, id) => ({ ...response(turn, body, id), output: output(turn, id) }),
  errorBody: openAiErrorBody,
  errorEvent: (code, message) =>
    named({ type: "error", sequence_number: 0, code: code ?? "server_is_overloaded", message, param: null }),
  headers: openAiHeaders,
};

function read(body: Json): ReadRequest {
  const messages = objects(body.input);
  const told = messages.filter(({ role }) => role === "system" || role === "developer");
  return {
    messages,
    system: [textOf(body.instructions), ...told.map(({ content }) => textOf(content))].filter(Boolean).join("\n"),
    tools: objects(body.tools)
      .filter(({ type }) => type === "function")
      .map(({ name, description, parameters }) => ({ name: String(name), description, schema: parameters })),
    images: messages.flatMap(({ type, content, output: result }) =>
      type === "function_call_output" ? imagesOf(result, true) : imagesOf(content, false),
    ),
  };
}

function imagesOf(content: unknown, inToolResult: boolean): SentImage[] {
  return objects(content).flatMap(({ type, image_url: url }) => {
    const found = type === "input_image" ? imageOfDataUrl(url, inToolResult) : undefined;
    return found === undefined ? [] : [found];
  });
}

/**
 * Every call in the input needs an output anywhere after it, and every output its call. A reference to a call's stored
 * item does not stand for the call: the API cannot tell by it which call an output belongs to.
 */
function objection(body: Json): string | undefined {
  if (typeof body.model !== "string") return "Missing required parameter: 'model'.";
  const open = new Set<string>();
  for (const { type, call_id: id } of objects(body.input)) {
    if (type === "function_call") open.add(String(id));
    if (type === "function_call_output" && !open.delete(String(id)) && body.previous_response_id === undefined) {
      return `No tool call found for function call output with call_id ${String(id)}.`;
    }
  }
  return open.size === 0 ? undefined : `No tool output found for function call ${namedIds(open)}.`;
}

function events(turn: ResolvedTurn, body: Json, id: string): SentEvent[] {
  const answered = response(turn, body, id);
  const begun = {
    ...answered,
    status: "in_progress",
    output: [],
    usage: null,
    incomplete_details: null,
  };
  const ended = { ...answered, output: output(turn, id) };
  const items = output(turn, id).flatMap((item, at) =>
    item.type === "message" ? messageEvents(turn.text, item, at) : callEvents(item, at),
  );
  return [
    { type: "response.created", response: begun },
    { type: "response.in_progress", response: begun },
    ...items,
    { type: answered.status === "completed" ? "response.completed" : "response.incomplete", response: ended },
  ].map((data, at) => named({ ...data, sequence_number: at }));
}

function messageEvents(text: string, item: Json, at: number): Json[] {
  const place = { item_id: item.id, output_index: at, content_index: 0 };
  const part = { type: "output_text", annotations: [], logprobs: [] };
  return [
    { type: "response.output_item.added", output_index: at, item: { ...item, status: "in_progress", content: [] } },
    { type: "response.content_part.added", ...place, part: { ...part, text: "" } },
    ...deltas(text).map((delta) => ({ type: "response.output_text.delta", ...place, delta, logprobs: [] })),
    { type: "response.output_text.done", ...place, text, logprobs: [] },
    { type: "response.content_part.done", ...place, part: { ...part, text } },
    { type: "response.output_item.done", output_index: at, item },
  ];
}

function callEvents(item: Json, at: number): Json[] {
  const place = { item_id: item.id, output_index: at };
  return [
    { type: "response.output_item.added", output_index: at, item: { ...item, status: "in_progress", arguments: "" } },
    ...deltas(String(item.arguments)).map((delta) => ({
      type: "response.function_call_arguments.delta",
      ...place,
      delta,
    })),
    { type: "response.function_call_arguments.done", ...place, arguments: item.arguments },
    { type: "response.output_item.done", output_index: at, item },
  ];
}

function output(turn: ResolvedTurn, id: string): Json[] {
  const content = [{ type: "output_text", text: turn.text, annotations: [], logprobs: [] }];
  const message = { type: "message", id: `msg_${id}`, status: "completed", role: "assistant", content };
  const calls = turn.calls.map((call, at) => ({
    type: "function_call",
    id: `fc_${id}_${at}`,
    call_id: call.id,
    name: call.name,
    arguments: call.arguments,
    status: "completed",
  }));
  return turn.text === "" && calls.length > 0 ? calls : [message, ...calls];
}

/** The API has no word for `stop` or `tool_calls`: such a response is completed, any other is incomplete for a reason. */
function response(turn: ResolvedTurn, body: Json, id: string): Json {
  const reason = { stop: null, tool_calls: null, length: "max_output_tokens", content_filter: "content_filter" }[
    turn.finish
  ];
  const { input, output: out, cached } = turn.usage;
  return {
    id: `resp_${id}`,
    object: "response",
    created_at: 1_760_000_000,
    model: body.model,
    status: reason === null ? "completed" : "incomplete",
    error: null,
    incomplete_details: reason === null ? null : { reason },
    usage: {
      input_tokens: input,
      input_tokens_details: { cached_tokens: cached },
      output_tokens: out,
      output_tokens_details: { reasoning_tokens: 0 },
      total_tokens: input + out,
    },
  };
}

function named(data: Json): SentEvent {
  return { name: String(data.type), data };
}
