import { posix } from "node:path";
import { TOOL_NAMES } from "./tool-names.ts";

/** Where an agent worker's answers come from: a model of a provider, or a transcript that plays the model's part. */
export type ModelRef =
  | { readonly kind: "provider"; readonly provider: string; readonly name: string }
  /** `file`: relative to the project's folder, and inside of it. */
  | { readonly kind: "script"; readonly file: string };

/** How much an agent may use, all of the agents that it calls included. */
export interface AgentBudget {
  /** Answers of the model. */
  readonly steps: number;
  /** Tokens in and out together. */
  readonly tokens: number;
  /** In US dollars, by the prices that the project declares; null: not counted. */
  readonly costUsd: number | null;
}

/** The defaults of a worker's budget. */
export const DEFAULT_STEPS = 50;
export const DEFAULT_TOKENS = 1_000_000;

/** The words that are no name of a provider. */
export const SCRIPT = "script";

/** `PROVIDER/NAME` or `script/FILE`, or the fault. A name may contain slashes. */
export function parseModelRef(raw: string): ModelRef | string {
  const [, provider = "", name = ""] = /^([A-Za-z0-9][A-Za-z0-9._-]{0,63})\/([^\p{Cc}]+)$/u.exec(raw) ?? [];
  if (provider === "") return "must be PROVIDER/NAME, such as `anthropic/claude-sonnet-4-5`, or script/FILE";
  if (provider !== SCRIPT) return { kind: "provider", provider, name };
  const file = posix.normalize(name);
  const isInside = !posix.isAbsolute(file) && file !== ".." && !file.startsWith("../") && !file.includes("\\");
  return isInside ? { kind: "script", file } : "must name a script inside of the project's folder";
}

/** What is wrong with the names that an agent's callable workers would have as its tools, or null. */
export function callableFault(calls: readonly string[]): string | null {
  const taken = new Map<string, string>(TOOL_NAMES.map((name) => [name, `the tool ${name}`]));
  for (const worker of calls) {
    const name = toolNameOf(worker);
    const other = taken.get(name);
    if (other !== undefined)
      return `\`${worker}\` would be the tool \`${name}\` of this agent, but that name belongs to ${other}; rename the worker`;
    taken.set(name, `the worker ${worker}`);
  }
  return null;
}

/** The name of a worker as a tool. Providers accept only letters, digits, `_` and `-`. */
export function toolNameOf(worker: string): string {
  return worker.replaceAll(".", "_");
}
