import { join } from "node:path";
import { readDeclarationFile } from "../../declarations/yaml/declaration-file.ts";
import { DeclarationError, describeProblem } from "../../declarations/yaml/problem.ts";
import { codeOf } from "../../platform/errno.ts";
import { ModelFailure } from "../failure.ts";
import type { OpenedModel } from "../opened-model.ts";
import type { Price } from "../spending.ts";
import { MAX_TRANSCRIPT_BYTES } from "../transcript/transcript-folder.ts";
import { parseScript } from "./script.ts";
import { ScriptModel } from "./script-model.ts";

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
