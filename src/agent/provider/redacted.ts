import { type LanguageModelMiddleware, wrapLanguageModel } from "ai";
import type { Redactor } from "../../secrets/redactor.ts";
import type { LanguageModel, StreamPart } from "../language-model.ts";

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

type Pieces = ReturnType<Redactor["pieces"]>;

function cleaning(redactor: Redactor): TransformStream<StreamPart, StreamPart> {
  const texts = new Map<string, Pieces>();
  const piecesOf = (id: string): Pieces => {
    const pieces = texts.get(id) ?? redactor.pieces();
    texts.set(id, pieces);
    return pieces;
  };
  return new TransformStream({
    transform(part, controller) {
      switch (part.type) {
        case "text-delta":
        case "reasoning-delta":
          controller.enqueue({ ...part, delta: piecesOf(`${part.type} ${part.id}`).add(part.delta) });
          return;
        case "text-end":
        case "reasoning-end": {
          const type = part.type === "text-end" ? "text-delta" : "reasoning-delta";
          const delta = piecesOf(`${type} ${part.id}`).end();
          if (delta !== "") controller.enqueue({ type, id: part.id, delta });
          controller.enqueue(part);
          return;
        }
        // The whole input comes with the call; of its pieces only their length counts, and a key could be cut between two.
        case "tool-input-delta":
          controller.enqueue({ ...part, delta: " ".repeat(part.delta.length) });
          return;
        case "raw":
          return;
        // What a provider does not support is not for the process's warnings.
        case "stream-start":
          controller.enqueue({ ...part, warnings: [] });
          return;
        case "tool-call":
          controller.enqueue({ ...part, ...redactedCall(part, redactor) });
          return;
        default:
          controller.enqueue(part);
      }
    },
  });
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
  // What is JSON and cannot be cleaned, because it is nested too deep, is not given on as it is: this throws.
  return { ...named, input: JSON.stringify(redactor.value(value)) };
}
