import type { ModelMessage } from "ai";
import { MAX_JSON_DEPTH } from "../json/parse-json.ts";

/** Why an agent ended without an answer. The caller sees it; it never contains a key. */
export type AgentFailureCode =
  /** The provider could not be reached or failed, in every attempt. */
  | "MODEL_UNAVAILABLE"
  /** The provider refused the request: a wrong key, an unknown model, too long a conversation. */
  | "MODEL_REFUSED"
  /** The API key is not available. */
  | "MODEL_KEY"
  /** The provider withheld the answer, or the model declined to answer. */
  | "MODEL_DECLINED"
  /** The answer reached the provider's length limit. */
  | "ANSWER_CUT"
  /** The answer is larger than Corral accepts from any model. */
  | "ANSWER_TOO_LARGE"
  /** The answer does not match `output_schema`, also after corrections. */
  | "OUTPUT_NOT_VALID"
  /** The script has no more answers, or is not valid. */
  | "SCRIPT_FAILED"
  | "STEP_LIMIT"
  | "TOKEN_LIMIT"
  | "COST_LIMIT";

export interface AgentFailure {
  readonly code: AgentFailureCode;
  readonly message: string;
}

/** Wraps errors of Corral's own code inside the package, which would pass them on as provider errors. */
export class OwnFault extends Error {
  override readonly name = "OwnFault";

  constructor(cause: unknown) {
    super("a bug", { cause });
  }
}

/** Thrown by the code that opens and asks models; the loop returns it as a value. */
export class ModelFailure extends Error {
  override readonly name = "ModelFailure";
  readonly code: AgentFailureCode;
  /** The minimum delay before a retry; null: a retry cannot help. */
  readonly retryAfterMs: number | null;

  constructor(code: AgentFailureCode, message: string, retryAfterMs: number | null = null, options: ErrorOptions = {}) {
    super(message, options);
    this.code = code;
    this.retryAfterMs = retryAfterMs;
  }
}

/** For a call whose input is too deep to redact, to execute or to send back to the model. */
export function nestedTooDeep(): ModelFailure {
  const message = `The model's answer has a call whose input is nested more than ${MAX_JSON_DEPTH} levels deep.`;
  return new ModelFailure("ANSWER_TOO_LARGE", message);
}

/** What an agent does, for people to watch. Texts come from the model and are as untrusted as its input. */
export type AgentEvent =
  | { readonly kind: "step"; readonly step: number }
  /** A piece of the model's text, as it comes. */
  | { readonly kind: "text"; readonly piece: string }
  /** The answer broke off; its text is void, and the model is asked again. */
  | { readonly kind: "retry"; readonly reason: string; readonly waitMs: number }
  | { readonly kind: "call"; readonly id: string; readonly tool: string; readonly input: unknown }
  /** `code`: of the refusal; null if the call was not refused. */
  | { readonly kind: "called"; readonly id: string; readonly tool: string; readonly code: string | null };

/** One tool call of a model. */
export interface AskedCall {
  readonly id: string;
  readonly tool: string;
  readonly input: unknown;
  /** Why the call is invalid: an unknown tool, or an input that is not JSON; null if it is valid. */
  readonly fault: string | null;
}

/** Tokens of a model's answer; null: not reported by the provider. */
export interface ModelTokens {
  readonly input: number | null;
  readonly output: number | null;
}

/** How a model's answer ended. */
export type AnswerEnd = "stop" | "calls" | "length" | "declined";

export interface ModelAnswer {
  readonly text: string;
  readonly calls: readonly AskedCall[];
  readonly end: AnswerEnd;
  readonly tokens: ModelTokens;
  /** The messages that represent the answer in the conversation. */
  readonly messages: readonly ModelMessage[];
  /** All characters of the answer, to estimate tokens that the provider did not report. */
  readonly characters: number;
}

/** Something that a model can call: a tool under its run's sandbox, or another worker. */
export interface AgentTool {
  /** Letters, digits, `_` and `-`, which every provider accepts. */
  readonly name: string;
  readonly description: string;
  /** JSON Schema of its input. */
  readonly inputSchema: Readonly<Record<string, unknown>>;
  /** True if calls of one answer may run concurrently, because none changes what another one sees. */
  readonly parallel: boolean;
  /** True if `onOutput` gets something: what a command prints, as it comes. */
  readonly hasOutput?: boolean;
  /** A refusal is an answer. Rejects for bugs and engine errors, and with the reason of `signal`. */
  run(
    input: unknown,
    signal: AbortSignal,
    onOutput?: (stream: "stdout" | "stderr", chunk: Buffer) => void | Promise<void>,
  ): Promise<AgentToolAnswer>;
}

export interface AgentToolAnswer {
  readonly ok: boolean;
  /** The code of a refusal; null if it is none. */
  readonly code: string | null;
  readonly text: string;
  readonly image?: { readonly mimeType: string; readonly base64: string };
}
