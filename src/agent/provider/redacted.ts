import { type LanguageModelMiddleware, wrapLanguageModel } from "ai";
import { isTooDeep } from "../../json/parse-json.ts";
import type { RedactedPieces, Redactor } from "../../secrets/redactor.ts";
import { ModelFailure, nestedTooDeep, OwnFault } from "../failure.ts";
import type { LanguageModel, StreamPart } from "../opened-model.ts";

/**
 * Wraps a model so that its output never contains the key. A server that repeats the key, as text or as a tool's input, cannot
 * bring it into a cell, a transcript or a record.
 */
export function redacted(model: LanguageModel, redactor: Redactor): LanguageModel {
  const middleware: LanguageModelMiddleware = {
    specificationVersion: "v4",
    wrapStream: async ({ doStream }) => {
      const { stream } = await doStream();
      // The request and the response headers are dropped.
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

  /** The redacted parts for one part: none, the part itself, or held-back text followed by the part. */
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
      // The complete input comes with the call. Of the parts only the length is used, and a key could be split between two.
      case "tool-input-delta":
        return [{ ...part, delta: " ".repeat(part.delta.length) }];
      case "raw":
        return [];
      // A provider's warnings must not become warnings of the process.
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

/** The input is JSON, which can write a key with escapes, so it is parsed, redacted and serialised again. */
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
