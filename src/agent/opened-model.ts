import type { wrapLanguageModel } from "ai";
import type { RedactedPieces } from "../secrets/redactor.ts";
import type { Price } from "./spending.ts";

/* The types of the interface between `ai` and its providers, which `ai` does not export by themselves. */

export type LanguageModel = ReturnType<typeof wrapLanguageModel>;
export type ModelRequest = Parameters<LanguageModel["doStream"]>[0];
export type ModelStream = Awaited<ReturnType<LanguageModel["doStream"]>>;
export type StreamPart = ModelStream["stream"] extends ReadableStream<infer Part> ? Part : never;

/** A model that can be asked. What comes from it holds no key any more. */
export interface OpenedModel {
  /** As the worker's file names it. */
  readonly name: string;
  readonly model: LanguageModel;
  /** How it is shown an image that a tool answered with. */
  readonly images: "in the result" | "after the result" | "never";
  /** Null: not known. */
  readonly price: Price | null;
  /** Takes the provider's key out of a text that somebody else sees. */
  redact(text: string): string;
  /** The same for a text that comes in pieces. */
  redactPieces(): RedactedPieces;
  /** The same for every text in a value that was read from such a text: as JSON, a key may be written with escapes. */
  redactValue(value: unknown): unknown;
}
