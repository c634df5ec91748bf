import type { wrapLanguageModel } from "ai";
import type { RedactedPieces } from "../secrets/redactor.ts";
import type { Price } from "./spending.ts";

/* Types of the interface between `ai` and its providers, which `ai` does not export directly. */

export type LanguageModel = ReturnType<typeof wrapLanguageModel>;
export type ModelRequest = Parameters<LanguageModel["doStream"]>[0];
export type ModelStream = Awaited<ReturnType<LanguageModel["doStream"]>>;
export type StreamPart = ModelStream["stream"] extends ReadableStream<infer Part> ? Part : never;

/** A model that can be asked. Its output does not contain the provider's key. */
export interface OpenedModel {
  /** As named in the worker's file. */
  readonly name: string;
  readonly model: LanguageModel;
  /** Where the model gets an image that a tool returned. */
  readonly images: "in the result" | "after the result" | "never";
  /** Null: unknown. */
  readonly price: Price | null;
  /** Removes the provider's key from a text. */
  redact(text: string): string;
  /** The same for a text that comes in parts. */
  redactPieces(): RedactedPieces;
  /** The same for every string in a parsed value, because JSON can write a key with escapes. */
  redactValue(value: unknown): unknown;
}
