import { deltas } from "./awkward-pieces.ts";
import { type ModelApi, namedIds, type ReadRequest, type ResolvedTurn, type SentEvent } from "./model-api.ts";
import { openAiErrorBody, openAiHeaders } from "./openai-errors.ts";
import { imageOfDataUrl, isJson, type Json, objects, type SentImage, textOf } from "./recorded-request.ts";

/** `POST /v1/chat/completions`, as OpenAI and the servers after its model speak it. */
export const chatCompletions: ModelApi = {
  path: "/v1/chat/completions",
  read,
  objection,
  events,
  whole,
  errorBody: openAiErrorBody,
  errorEvent: (code, message) => ({
    data: { error: { message, type: "server_error", param: null, code: code ?? "server_overloaded" } },
  }),
  headers: openAiHeaders,
};

function read(body: Json): ReadRequest {
  const messages = objects(body.messages);
  return {
    messages,
    system: messages
      .filter(({ role }) => role === "system" || role === "developer")
      .map(({ content }) => textOf(content))
      .join("\n"),
    tools: objects(body.tools).flatMap((tool) => {
      const { function: own } = tool;
      return isJson(own) ? [{ name: String(own.name), description: own.description, schema: own.parameters }] : [];
    }),
    images: messages.flatMap(imagesOf),
  };
}

function imagesOf({ role, content }: Json): SentImage[] {
  return objects(content).flatMap(({ type, image_url: image }) => {
    const found = type === "image_url" && isJson(image) ? imageOfDataUrl(image.url, role === "tool") : undefined;
    return found === undefined ? [] : [found];
  });
}

/** Every call must be answered by the messages right after it, and nothing else may be answered. */
function objection(body: Json): string | undefined {
  if (typeof body.model !== "string") return "you must provide a model parameter";
  const open = new Set<string>();
  for (const { role, tool_calls: calls, tool_call_id: answered } of objects(body.messages)) {
    if (role === "tool") {
      if (!open.delete(String(answered))) {
        return "messages with role 'tool' must be a response to a preceeding message with 'tool_calls'.";
      }
      continue;
    }
    if (open.size > 0) break;
    for (const { id } of objects(calls)) open.add(String(id));
  }
  if (open.size === 0) return undefined;
  return `An assistant message with 'tool_calls' must be followed by tool messages responding to each 'tool_call_id'. The following tool_call_ids did not have response messages: ${namedIds(open)}`;
}

function events(turn: ResolvedTurn, body: Json, id: string): SentEvent[] {
  const base = { id: `chatcmpl-${id}`, object: "chat.completion.chunk", created: 1_760_000_000, model: body.model };
  const asked = isJson(body.stream_options) && body.stream_options.include_usage === true;
  const chunk = (delta: Json, finish: string | null = null): SentEvent => ({
    data: {
      ...base,
      choices: [{ index: 0, delta, logprobs: null, finish_reason: finish }],
      ...(asked && { usage: null }),
    },
  });
  return [
    chunk({ role: "assistant", content: turn.calls.length > 0 && turn.text === "" ? null : "", refusal: null }),
    ...deltas(turn.text).map((content) => chunk({ content })),
    ...callDeltas(turn).map((call) => chunk({ tool_calls: [call] })),
    chunk({}, turn.finish),
    // Usage is sent to those alone who asked for it, in a chunk without a choice.
    ...(asked && !turn.uncounted ? [{ data: { ...base, choices: [], usage: usageOf(turn) } }] : []),
    { data: "[DONE]" },
  ];
}

/** The pieces of all calls by turns: what belongs together is told by `index` alone. */
function callDeltas(turn: ResolvedTurn): Json[] {
  const perCall = turn.calls.map((call, index) => [
    { index, id: call.id, type: "function", function: { name: call.name, arguments: "" } },
    ...deltas(call.arguments).map((piece) => ({ index, function: { arguments: piece } })),
  ]);
  const longest = Math.max(0, ...perCall.map(({ length }) => length));
  return Array.from({ length: longest }, (_, at) => perCall.flatMap((pieces) => pieces[at] ?? [])).flat();
}

function whole(turn: ResolvedTurn, body: Json, id: string): Json {
  const calls = turn.calls.map((call) => ({
    id: call.id,
    type: "function",
    function: { name: call.name, arguments: call.arguments },
  }));
  const content = turn.text === "" && calls.length > 0 ? null : turn.text;
  const message = { role: "assistant", content, refusal: null, ...(calls.length > 0 && { tool_calls: calls }) };
  return {
    id: `chatcmpl-${id}`,
    object: "chat.completion",
    created: 1_760_000_000,
    model: body.model,
    choices: [{ index: 0, message, logprobs: null, finish_reason: turn.finish }],
    usage: usageOf(turn),
  };
}

function usageOf({ usage: { input, output, cached } }: ResolvedTurn): Json {
  return {
    prompt_tokens: input,
    completion_tokens: output,
    total_tokens: input + output,
    prompt_tokens_details: { cached_tokens: cached },
    completion_tokens_details: { reasoning_tokens: 0 },
  };
}
