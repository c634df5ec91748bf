import type { Json } from "./recorded-request.ts";

/** Type and code that OpenAI has for a status. */
const KINDS: Record<number, [type: string, code: string | null]> = {
  400: ["invalid_request_error", null],
  401: ["invalid_request_error", "invalid_api_key"],
  404: ["invalid_request_error", "model_not_found"],
  429: ["requests", "rate_limit_exceeded"],
};

/** The body of an error, of chat completions and of responses alike. */
export function openAiErrorBody(status: number, message: string): Json {
  const [type, code] = KINDS[status] ?? ["server_error", null];
  return { error: { message, type, param: null, code } };
}

export function openAiHeaders(id: string): Record<string, string> {
  return { "x-request-id": `req_${id}`, "openai-version": "2020-10-01" };
}
