import { parsePathIn } from "../../sandbox/access.ts";
import { type Sandbox, withheldAt } from "../../sandbox/sandbox.ts";
import type { VirtualPath } from "../../sandbox/virtual-path.ts";
import type { ToolResult } from "../../tools/tool.ts";
import { TOOLS } from "../../tools/toolbox.ts";
import type { Grantee } from "../model/grantee.ts";
import type { GrantNeed, GrantOutcome, GrantSurroundings, Refused } from "./judge.ts";
import { requestGrant } from "./request.ts";

/** One use of a tool; under a sandbox of its own if it was granted something for itself alone. */
export type Use = (under: Sandbox | null) => Promise<ToolResult>;

export interface ToolUse {
  readonly name: string;
  readonly rawInput: unknown;
  readonly use: Use;
  /** True if the session has a cell that does not show what was granted just now. */
  readonly cellIsOld: () => boolean;
}

/** The most directories that one use of a tool can need: two paths, each for reading and then for writing. */
const MAX_REQUESTS = 4;

/**
 * Uses a tool. If it is refused for a path outside, asks for the directory and uses it again. Nothing was touched
 * before, for the validator answers first. A worker that is not `dynamic` is refused as ever.
 */
export async function usedGranting(
  { name, rawInput, use, cellIsOld }: ToolUse,
  grantee: Grantee,
  around: GrantSurroundings,
  signal: AbortSignal,
): Promise<ToolResult> {
  await around.ledger.look();
  let under: Sandbox | null = null;
  const notes: string[] = [];
  for (let asked = 0; ; asked += 1) {
    const result = await use(under);
    const now = under ?? grantee.sandbox;
    const path = needOf(name, rawInput, result, now);
    const mayAsk = path !== null && (grantee.worker.dynamic !== null || withheldAt(now, path.path) !== undefined);
    const need = mayAsk ? path : null;
    if (need === null || asked === MAX_REQUESTS) return noted(result, notes);
    const outcome = await requestGrant({ ...need, ...(under === null ? {} : { under }) }, grantee, around, signal);
    if (!outcome.ok) return refused(result, outcome);
    if (outcome.scope === "once" || under !== null) under = outcome.sandbox;
    notes.push(...noteOn(outcome, need.mode, cellIsOld()));
  }
}

function noteOn(outcome: GrantOutcome & { ok: true }, mode: string, cellIsOld: boolean): string[] {
  const { directory, scope } = outcome;
  const what = mode === "write" ? "Writing to" : "Reading";
  if (scope === null) return [];
  if (scope === "once") return [`${what} '${directory}' was granted for this one operation.`];
  const lost = cellIsOld
    ? " The next command runs in a new container that shows it: what is in /tmp, the home directory and running programs is lost with it."
    : "";
  return [`${what} '${directory}' was granted until the end of this run.${lost}`];
}

function noted(result: ToolResult, notes: readonly string[]): ToolResult {
  if (notes.length === 0 || !result.ok) return result;
  return { ...result, text: [result.text, ...notes.map((note) => `[Note: ${note}]`)].join("\n") };
}

/** The text still lists what there is without it, so that the worker can continue. */
function refused(result: ToolResult, { refusal }: Refused): ToolResult {
  if (result.ok) return result;
  const { code, message } = refusal;
  return { ...result, code, message: `${message}\n${result.message}` };
}

/**
 * What a refused tool would need; null if it was refused for another reason than a path outside, or for one
 * that it was not given itself.
 */
function needOf(
  tool: string,
  rawInput: unknown,
  result: ToolResult,
  sandbox: Sandbox,
): Omit<GrantNeed, "under"> | null {
  if (result.ok || (result.code !== "PATH_NOT_IN_SANDBOX" && result.code !== "PATH_NOT_WRITABLE")) return null;
  for (const [field, mode] of Object.entries(TOOLS.get(tool)?.paths ?? {})) {
    const path = pathIn(rawInput, field, sandbox);
    if (path !== null && path === result.data.path) return { path, mode, why: `to use ${tool} on '${path}'` };
  }
  return null;
}

function pathIn(rawInput: unknown, field: string, sandbox: Sandbox): VirtualPath | null {
  const raw = (rawInput as Readonly<Record<string, unknown>> | null)?.[field];
  const parsed = typeof raw === "string" ? parsePathIn(sandbox, raw) : null;
  return parsed?.ok ? parsed.path : null;
}
