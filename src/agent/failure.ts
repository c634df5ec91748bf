import { MAX_JSON_DEPTH } from "../json/parse-json.ts";

/** Why an agent did not come to an answer. Each is told to its caller, and none holds a key. */
export type AgentFailureCode =
  /** The provider could not be reached, or failed, as often as it was asked. */
  | "MODEL_UNAVAILABLE"
  /** The provider refused the request: a wrong key, an unknown model, too long a conversation. */
  | "MODEL_REFUSED"
  /** The key is not to be had. */
  | "MODEL_KEY"
  /** The provider held back the answer, or the model would not give one. */
  | "MODEL_DECLINED"
  /** The answer was longer than the provider lets it be. */
  | "ANSWER_CUT"
  /** The answer is larger than is taken from any model. */
  | "ANSWER_TOO_LARGE"
  /** The answer is not what `output_schema` asks, after it was told so. */
  | "OUTPUT_NOT_VALID"
  /** A transcript has nothing more to say, or is none. */
  | "SCRIPT_FAILED"
  | "STEP_LIMIT"
  | "TOKEN_LIMIT"
  | "COST_LIMIT";

export interface AgentFailure {
  readonly code: AgentFailureCode;
  readonly message: string;
}

/** Wraps what Corral's own code throws inside of the package, which hands it on as if it were the provider's. */
export class OwnFault extends Error {
  override readonly name = "OwnFault";

  constructor(cause: unknown) {
    super("a bug", { cause });
  }
}

/** Thrown by what opens and asks models, and told by the loop as a value. */
export class ModelFailure extends Error {
  override readonly name = "ModelFailure";
  readonly code: AgentFailureCode;
  /** Null: asking again is of no use. Else how long to wait at least. */
  readonly retryAfterMs: number | null;

  constructor(code: AgentFailureCode, message: string, retryAfterMs: number | null = null, options: ErrorOptions = {}) {
    super(message, options);
    this.code = code;
    this.retryAfterMs = retryAfterMs;
  }
}

/** Of a call whose input could neither be cleaned of a key, nor be done, nor be told to the model again. */
export function nestedTooDeep(): ModelFailure {
  const message = `The model's answer has a call whose input is nested more than ${MAX_JSON_DEPTH} levels deep.`;
  return new ModelFailure("ANSWER_TOO_LARGE", message);
}
