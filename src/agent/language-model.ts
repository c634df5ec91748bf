import type { wrapLanguageModel } from "ai";

/* The types of the interface between `ai` and its providers, which `ai` does not export by themselves. */

export type LanguageModel = ReturnType<typeof wrapLanguageModel>;
export type ModelRequest = Parameters<LanguageModel["doStream"]>[0];
export type ModelStream = Awaited<ReturnType<LanguageModel["doStream"]>>;
export type StreamPart = ModelStream["stream"] extends ReadableStream<infer Part> ? Part : never;
