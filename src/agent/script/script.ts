import { z } from "zod";
import { checkShape } from "../../declarations/yaml/check.ts";
import { parseYaml } from "../../declarations/yaml/document.ts";
import { DeclarationError } from "../../declarations/yaml/problem.ts";
import { map } from "../../declarations/yaml/shape.ts";

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
