import { createAnthropic } from "@ai-sdk/anthropic";
import { anthropicServer } from "./anthropic-server.ts";
import { itSpeaks } from "./model-server.contract.ts";

const NO_ANSWER = "onError, text rejects AI_NoOutputGeneratedError";

itSpeaks("@ai-sdk/anthropic", {
  serve: anthropicServer,
  model: (baseURL, apiKey) => createAnthropic({ baseURL, apiKey })("claude-sonnet-4-5"),
  path: "/v1/messages",
  outcomes: {
    "cut before the first event": `reports AI_APICallError 200 retryable, ${NO_ANSWER}`,
    "cut after the first event": "throws AI_APICallError 200 retryable, text rejects AI_APICallError",
    "ends before the first event": `reports AI_NoOutputGeneratedError, ${NO_ANSWER}`,
    "ends within the text": "finish interrupted, text resolves",
    "reports an overload before any output": `reports AI_APICallError 529 retryable, ${NO_ANSWER}`,
    "reports an overload within the text":
      "reports AI_StreamProviderError 529 retryable, onError, finish error, text resolves",
    "sends events that are no JSON": `reports Error, ${NO_ANSWER}`,
    "sends events of an unknown shape": `reports Error, ${NO_ANSWER}`,
    "sends a page": `reports AI_NoOutputGeneratedError, ${NO_ANSWER}`,
  },
  toolError: { content: [{ type: "tool_result", tool_use_id: "call_a", content: "refused", is_error: true }] },
  imagesOfTools: 1,
  lateResult: 400,
});
