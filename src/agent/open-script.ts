import { join } from "node:path";
import { z } from "zod";
import { checkShape, parseYaml, readDeclarationFile } from "../declarations/yaml/document.ts";
import { DeclarationError, describeProblem } from "../declarations/yaml/problem.ts";
import { map } from "../declarations/yaml/shape.ts";
import { codeOf } from "../platform/errno.ts";
import { ModelFailure } from "./events.ts";
import type { LanguageModel, ModelRequest, ModelStream, OpenedModel, Price, StreamPart } from "./spending.ts";
import { MAX_TRANSCRIPT_BYTES } from "./transcript.ts";

/** One answer of a model in a script. */
export interface ScriptedAnswer {
  readonly say: string;
  readonly calls: readonly { readonly tool: string; readonly input: unknown }[];
  readonly usage: { readonly input: number; readonly output: number } | null;
}

const MAX_ANSWERS = 10_000;

/** A call as a person writes it: `read_file: { path: /a }`. */
const call = z.record(z.string().min(1).max(200), z.unknown()).transform((raw, context) => {
  const [[tool, input] = ["", {}], ...others] = Object.entries(raw);
  if (tool !== "" && others.length === 0) return { tool, input: input ?? {} };
  context.issues.push({ code: "custom", input: raw, message: "must be one tool with its input" });
  return z.NEVER;
});

const written = z
  .array(map({ say: z.string().default(""), calls: z.array(call).max(1000).default([]) }))
  .max(MAX_ANSWERS);

/** A line of a transcript in the format of `transcript.ts`. Only answers are used. */
const line = z.object({
  type: z.string(),
  say: z.string().default(""),
  calls: z.array(z.object({ tool: z.string(), input: z.unknown().default({}) })).default([]),
  usage: z.object({ input: z.number().min(0), output: z.number().min(0) }).nullish(),
});

/** Parses a script written by a person (YAML) or a transcript (JSON lines). Throws a `DeclarationError`. */
export function parseScript(text: string, file: string): readonly ScriptedAnswer[] {
  return file.endsWith(".jsonl") ? parseTranscript(text, file) : parseWritten(text, file);
}

function parseWritten(text: string, file: string): readonly ScriptedAnswer[] {
  const parsed = parseYaml(text, file);
  if (!parsed.ok) throw new DeclarationError(parsed.problems);
  const checked = checkShape(parsed.document, written);
  if (!checked.ok) throw new DeclarationError(checked.problems);
  return checked.value.map((answer) => ({ ...answer, usage: null }));
}

function parseTranscript(text: string, file: string): readonly ScriptedAnswer[] {
  const answers: ScriptedAnswer[] = [];
  for (const [index, raw] of text.split("\n").entries()) {
    if (raw.trim() === "") continue;
    const parsed = line.safeParse(parsedLine(raw, file, index + 1));
    if (!parsed.success) throw faultAt(file, index + 1, z.prettifyError(parsed.error));
    const { type, say, calls, usage } = parsed.data;
    if (type === "answer") answers.push({ say, calls, usage: usage ?? null });
    if (answers.length > MAX_ANSWERS) throw faultAt(file, index + 1, `has more than ${MAX_ANSWERS} answers`);
  }
  return answers;
}

function parsedLine(raw: string, file: string, lineNumber: number): unknown {
  try {
    return JSON.parse(raw);
  } catch {
    throw faultAt(file, lineNumber, "is not JSON");
  }
}

function faultAt(file: string, lineNumber: number, message: string): DeclarationError {
  return new DeclarationError([{ file, line: lineNumber, column: 1, path: "", message }]);
}

/** Gives the answers of a script in order, whatever it is asked. */
export class ScriptModel implements LanguageModel {
  readonly specificationVersion = "v4";
  readonly provider = "script";
  readonly modelId: string;
  readonly supportedUrls = {};
  readonly #answers: readonly ScriptedAnswer[];
  #next = 0;

  constructor(file: string, answers: readonly ScriptedAnswer[]) {
    this.modelId = file;
    this.#answers = answers;
  }

  async doStream(_request: ModelRequest): Promise<ModelStream> {
    const answer = this.#answers[this.#next];
    if (answer === undefined) {
      const message = `The script ${this.modelId} has only ${this.#answers.length} answers, but the agent needs another one.`;
      throw new ModelFailure("SCRIPT_FAILED", message);
    }
    this.#next += 1;
    return { stream: ReadableStream.from(partsOf(answer, this.#next)) as ReadableStream<StreamPart> };
  }

  async doGenerate(): Promise<never> {
    throw new Error("a script supports only streaming");
  }
}

function partsOf({ say, calls, usage }: ScriptedAnswer, turn: number): StreamPart[] {
  const parts: StreamPart[] = [{ type: "stream-start", warnings: [] }];
  if (say !== "") {
    const id = `text-${turn}`;
    parts.push({ type: "text-start", id });
    // Word by word, as models do.
    for (const delta of say.split(/(?<=\s)(?=\S)/)) parts.push({ type: "text-delta", id, delta });
    parts.push({ type: "text-end", id });
  }
  for (const [index, { tool, input }] of calls.entries()) {
    const toolCallId = `call-${turn}-${index + 1}`;
    parts.push({ type: "tool-call", toolCallId, toolName: tool, input: JSON.stringify(input) });
  }
  parts.push({
    type: "finish",
    usage: {
      inputTokens: { total: usage?.input, noCache: undefined, cacheRead: undefined, cacheWrite: undefined },
      outputTokens: { total: usage?.output, text: undefined, reasoning: undefined },
    },
    finishReason: { unified: calls.length > 0 ? "tool-calls" : "stop", raw: undefined },
  });
  return parts;
}

/** A model whose answers come from a script: no key and no network. Its tools and cells are real. */
export async function openScript(file: string, projectDir: string): Promise<OpenedModel> {
  try {
    // A transcript also contains tool results, so it may have the maximum length of transcripts.
    const maxBytes = file.endsWith(".jsonl") ? MAX_TRANSCRIPT_BYTES : undefined;
    const answers = parseScript(await readDeclarationFile(join(projectDir, file), file, maxBytes), file);
    const model = new ScriptModel(file, answers);
    return { name: `script/${file}`, model, images: "in the result", price: FREE, ...NO_KEY };
  } catch (error) {
    const message = `The script ${file} cannot be used: ${faultOf(error)}`;
    throw new ModelFailure("SCRIPT_FAILED", message, null, { cause: error });
  }
}

const NO_KEY: Pick<OpenedModel, "redact" | "redactPieces" | "redactValue"> = {
  redact: (text) => text,
  redactPieces: () => ({ add: (piece) => piece, end: () => "" }),
  redactValue: (value) => value,
};

const FREE: Price = { input: 0, output: 0 };

function faultOf(error: unknown): string {
  if (error instanceof DeclarationError) return error.problems.map(describeProblem).join("; ");
  const code = codeOf(error);
  if (code === undefined) throw error;
  return code === "ENOENT" ? "it does not exist" : `it cannot be read (${code})`;
}
