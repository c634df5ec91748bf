import { type LanguageModelMiddleware, wrapLanguageModel } from "ai";
import { isTooDeep } from "../../json/parse-json.ts";
import type { RedactedPieces, Redactor } from "../../secrets/redactor.ts";
import { ModelFailure, nestedTooDeep, OwnFault } from "../failure.ts";
import type { LanguageModel, StreamPart } from "../opened-model.ts";

/**
 * The model without its key: a server that repeats what it was sent, as text or as a tool's input, does not bring it into
 * a cell, a transcript or a record.
 */
export function redacted(model: LanguageModel, redactor: Redactor): LanguageModel {
  const middleware: LanguageModelMiddleware = {
    specificationVersion: "v4",
    wrapStream: async ({ doStream }) => {
      const { stream } = await doStream();
      // The request and the response's headers are nobody's business.
      return { stream: stream.pipeThrough(cleaning(redactor)) };
    },
  };
  return wrapLanguageModel({ model, middleware });
}

function cleaning(redactor: Redactor): TransformStream<StreamPart, StreamPart> {
  const cleaner = new Cleaner(redactor);
  return new TransformStream({
    transform(part, controller) {
      try {
        for (const clean of cleaner.cleaned(part)) controller.enqueue(clean);
      } catch (error) {
        throw error instanceof ModelFailure ? error : new OwnFault(error);
      }
    },
  });
}

class Cleaner {
  readonly #redactor: Redactor;
  readonly #texts = new Map<string, RedactedPieces>();

  constructor(redactor: Redactor) {
    this.#redactor = redactor;
  }

  /** What is told of a part: nothing, itself without the key, or first what was held back of the text that it ends. */
  cleaned(part: StreamPart): StreamPart[] {
    switch (part.type) {
      case "text-delta":
      case "reasoning-delta":
        return [{ ...part, delta: this.#piecesOf(`${part.type} ${part.id}`).add(part.delta) }];
      case "text-end":
      case "reasoning-end": {
        const type = part.type === "text-end" ? "text-delta" : "reasoning-delta";
        const delta = this.#piecesOf(`${type} ${part.id}`).end();
        return delta === "" ? [part] : [{ type, id: part.id, delta }, part];
      }
      // The whole input comes with the call; of its pieces only their length counts, and a key could be cut between two.
      case "tool-input-delta":
        return [{ ...part, delta: " ".repeat(part.delta.length) }];
      case "raw":
        return [];
      // What a provider does not support is not for the process's warnings.
      case "stream-start":
        return [{ ...part, warnings: [] }];
      case "tool-call":
        return [{ ...part, ...redactedCall(part, this.#redactor) }];
      default:
        return [part];
    }
  }

  #piecesOf(id: string): RedactedPieces {
    const pieces = this.#texts.get(id) ?? this.#redactor.pieces();
    this.#texts.set(id, pieces);
    return pieces;
  }
}

/** The input is JSON, in which a key may be written with escapes: it is read, cleaned and written again. */
function redactedCall({ toolCallId, toolName, input }: StreamPart & { type: "tool-call" }, redactor: Redactor) {
  const named = { toolCallId: redactor.text(toolCallId), toolName: redactor.text(toolName) };
  const clean = redactor.text(input);
  let value: unknown;
  try {
    value = JSON.parse(clean);
  } catch {
    return { ...named, input: clean };
  }
  if (isTooDeep(value)) throw nestedTooDeep();
  return { ...named, input: JSON.stringify(redactor.value(value)) };
}
