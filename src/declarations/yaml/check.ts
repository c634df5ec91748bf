import type { z } from "zod";
import type { YamlDocument } from "./document.ts";
import { describeIssue } from "./issue.ts";
import type { Problem } from "./problem.ts";

export type Checked<Value> =
  | { readonly ok: true; readonly value: Value }
  | { readonly ok: false; readonly problems: readonly Problem[] };

/** A document's value in the shape that `schema` describes, or every problem with it at its place in the file. */
export function checkShape<Schema extends z.ZodType>(
  document: YamlDocument,
  schema: Schema,
): Checked<z.output<Schema>> {
  const result = schema.safeParse(document.raw, { error: describeIssue, jitless: true });
  if (result.success) return { ok: true, value: result.data };
  return { ok: false, problems: result.error.issues.flatMap((issue) => problemsOf(document, issue)) };
}

function problemsOf(document: YamlDocument, issue: z.core.$ZodIssue): Problem[] {
  const path = issue.path.map((segment) => (typeof segment === "number" ? segment : String(segment)));
  if (issue.code === "unrecognized_keys") {
    const messages = issue.message.split("\n");
    return issue.keys.map((key, index) => document.problemAt([...path, key], messages[index] ?? issue.message, "key"));
  }
  const at = issue.code === "custom" && issue.params?.at === "key" ? "key" : "value";
  return [document.problemAt(path, issue.message, at)];
}
