import { constants } from "node:fs";
import { open } from "node:fs/promises";
import { isMap, isScalar, isSeq, LineCounter, type Node, type Pair, parseDocument, visit } from "yaml";
import type { z } from "zod";
import { DeclarationError, type Problem } from "./problem.ts";
import { describeIssue } from "./shape.ts";

/** Four bytes for each character that the parser accepts at most. */
const MAX_BYTES = 4 * 256 * 1024;

/**
 * The text of a declaration. Only of a regular file and only so much as the parser takes: a project may be a stranger's,
 * and what it calls `corral.yaml` a FIFO or an endless device. `shown`: the file as a person knows it.
 */
export async function readDeclarationFile(path: string, shown: string, maxBytes = MAX_BYTES): Promise<string> {
  const wrong = (message: string) => new DeclarationError([{ file: shown, line: 1, column: 1, path: "", message }]);
  // Not to wait for the other end of a FIFO.
  await using file = await open(path, constants.O_RDONLY | constants.O_NONBLOCK);
  const found = await file.stat();
  if (found.isDirectory()) throw wrong("is a folder, not a file");
  if (!found.isFile()) throw wrong("is not a regular file");
  if (found.size > maxBytes) throw wrong(`is larger than ${maxBytes} bytes`);
  return await file.readFile("utf8");
}

/** Keys and indexes that lead to a value. */
export type KeyPath = readonly (string | number)[];

/** A YAML text that parsed, with the way back from each value to its place in the file. */
export interface YamlDocument {
  readonly file: string;
  /** Plain maps, arrays and scalars; not yet checked against anything. */
  readonly raw: unknown;
  /** A problem at a value, or at its key. If the path does not exist, at the nearest map around it. */
  problemAt(path: KeyPath, message: string, at?: "key" | "value"): Problem;
}

export type ParsedYaml =
  | { readonly ok: true; readonly document: YamlDocument }
  | { readonly ok: false; readonly problems: readonly Problem[] };

/** Declarations are small; anything larger is a mistake or an attack on the parser. */
const MAX_CHARACTERS = 256 * 1024;

/**
 * Parses one YAML 1.2 document.
 *
 * Anchors, aliases, merge keys and tags are refused: they hide what a declaration grants, and
 * "billion laughs" files consist of them. `firstLine` is where the text begins in its file (front matter: 2).
 */
export function parseYaml(text: string, file: string, firstLine = 1): ParsedYaml {
  if (text.length > MAX_CHARACTERS) {
    const message = `is ${text.length} characters long; at most ${MAX_CHARACTERS} are read`;
    return { ok: false, problems: [{ file, line: firstLine, column: 1, path: "", message }] };
  }
  const lines = new LineCounter();
  const parsed = parseDocument(text, { lineCounter: lines, prettyErrors: false, stringKeys: true });
  const problem = (offset: number, path: KeyPath, message: string): Problem => {
    const { line, col } = lines.linePos(offset);
    return { file, line: Math.max(1, line) + firstLine - 1, column: Math.max(1, col), path: path.join("."), message };
  };

  const faults = [...parsed.errors, ...parsed.warnings].map((fault) => problem(fault.pos[0], [], fault.message));
  if (faults.length > 0) return { ok: false, problems: faults.slice(0, 1) };
  const refused = refusedSyntax(parsed.contents).map(([offset, message]) => problem(offset, [], message));
  if (refused.length > 0) return { ok: false, problems: refused };

  const problemAt: YamlDocument["problemAt"] = (path, message, at = "value") =>
    problem(offsetOf(parsed.contents, path, at), path, message);
  return { ok: true, document: { file, raw: parsed.toJS({ maxAliasCount: 0 }), problemAt } };
}

function refusedSyntax(contents: Node | null): [offset: number, message: string][] {
  const refused: [number, string][] = [];
  visit(contents, {
    Alias: (_key, alias) => {
      refused.push([startOf(alias), `aliases such as \`*${alias.source}\` are not allowed; write the value itself`]);
    },
    Pair: (_key, pair) => {
      const name = keyOf(pair);
      if (name === "__proto__" || name === "<<") refused.push([startOf(pair.key), `\`${name}\` cannot be a key`]);
    },
  });
  return refused;
}

/** Where a value begins. The last node that the path reaches is the best place when the rest of it is missing. */
function offsetOf(contents: Node | null, path: KeyPath, at: "key" | "value"): number {
  let node: unknown = contents;
  for (const [depth, segment] of path.entries()) {
    const pair = isMap(node) ? node.items.find((candidate) => keyOf(candidate) === String(segment)) : undefined;
    if (pair && depth === path.length - 1 && (at === "key" || pair.value === null)) return startOf(pair.key);
    const next = pair?.value ?? (isSeq(node) ? node.items[Number(segment)] : undefined);
    if (next === undefined || next === null) break;
    node = next;
  }
  return startOf(node);
}

function keyOf(pair: Pair): string | null {
  return isScalar(pair.key) ? String(pair.key.value) : null;
}

function startOf(node: unknown): number {
  return (node as Node | null)?.range?.[0] ?? 0;
}

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
