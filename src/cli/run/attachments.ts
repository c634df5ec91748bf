import { readFile } from "node:fs/promises";
import nodePath, { type PlatformPath, resolve } from "node:path";
import { boundedText, jsonFaultOffset } from "../../json/parse-json.ts";
import type { AttachedTree } from "../../operations/runs.ts";
import { isAttachmentName } from "../../run/calls/call.ts";
import { namedPath } from "../declared/given-options.ts";
import { UsageError } from "../terminal/arguments.ts";
import type { Terminal } from "../terminal/terminal.ts";

const MAX_INPUT_BYTES = 64 * 1024 * 1024;

/** An input as it is typed: JSON, `@FILE`, or `-` for standard input. `undefined` where there is none. `called`: for messages. */
export async function readInput(
  raw: string | undefined,
  terminal: Pick<Terminal, "cwd" | "stdin">,
  called = "--input",
): Promise<unknown> {
  if (raw === undefined) return undefined;
  if (raw === "-") {
    const text = await boundedText(terminal.stdin, { maxBytes: MAX_INPUT_BYTES });
    if (text !== null) return parse(text, "standard input");
    throw new UsageError(`standard input holds more than ${MAX_INPUT_BYTES} bytes; attach large data as a file`);
  }
  if (!raw.startsWith("@")) return parse(raw, called);
  const file = raw.slice(1);
  try {
    return parse(await readFile(resolve(terminal.cwd, file), "utf8"), file);
  } catch (error) {
    if (error instanceof UsageError) throw error;
    throw new UsageError(`${called}: ${file} cannot be read: ${(error as Error).message}`, { cause: error });
  }
}

/** Editors of Windows begin a file with a mark, which is no JSON. */
function parse(marked: string, source: string): unknown {
  const text = marked.replace(/^\uFEFF/, "");
  try {
    return JSON.parse(text);
  } catch (error) {
    const { line, column } = lineAndColumn(text, jsonFaultOffset(text, (error as Error).message));
    throw new UsageError(`${source}:${line}:${column}: this is not JSON: ${(error as Error).message}`);
  }
}

function lineAndColumn(text: string, offset: number): { line: number; column: number } {
  const before = text.slice(0, offset).split("\n");
  return { line: before.length, column: (before.at(-1) ?? "").length + 1 };
}

export interface NamedPath {
  readonly path: string;
  readonly name: string;
}

/** The values of `--attach`. `PATH=NAME` names the file below `/attachments`; a path with `=` in it is taken whole if it exists. */
export async function attachedPaths(
  raws: readonly string[],
  cwd: string,
  paths: Pick<PlatformPath, "resolve" | "sep" | "basename"> = nodePath,
): Promise<readonly NamedPath[]> {
  const names = new Set<string>();
  const attached: NamedPath[] = [];
  for (const raw of raws) {
    const { path, name = paths.basename(path) } = await namedPath(raw, cwd, paths);
    if (!isAttachmentName(name)) throw new UsageError(`--attach ${raw}: ${JSON.stringify(name)} is not a file name`);
    if (names.has(name))
      throw new UsageError(`--attach ${raw}: another attachment has the name ${name}; write PATH=NAME`);
    names.add(name);
    attached.push({ path, name });
  }
  return attached;
}

/** The value of `--attach-tree`, `COMMIT` or `COMMIT=NAME`. `others`: attachments whose names are taken. */
export async function attachedTreeOf(
  raw: string,
  others: readonly NamedPath[],
  where: { readonly cwd: string; readonly signal: AbortSignal },
): Promise<AttachedTree> {
  const [, revision = raw, name = "tree.tar"] = /^(.+)=([^/=]+)$/s.exec(raw) ?? [];
  if (!isAttachmentName(name)) throw new UsageError(`--attach-tree: ${JSON.stringify(name)} is not a file name`);
  if (others.some((other) => other.name === name))
    throw new UsageError(`--attach-tree: another attachment has the name ${name}; write COMMIT=NAME`);
  // Few runs attach a tree, and git is loaded only for these.
  const { attachedTree } = await import("../../operations/runs.ts");
  return await attachedTree(revision, name, where);
}
