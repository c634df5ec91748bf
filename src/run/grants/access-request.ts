import { z } from "zod";
import { type Approver, denied, whyNotCovered } from "../../approval/approver.ts";
import { examine, firstFaults } from "../../json/parse-json.ts";
import { parsePathIn, readablePaths } from "../../sandbox/access.ts";
import { reachesHost } from "../../sandbox/network/hosts.ts";
import { commandSandbox, type Sandbox, withheldAt } from "../../sandbox/sandbox.ts";
import type { VirtualPath } from "../../sandbox/virtual-path.ts";
import type { TakeGiven } from "../../state/live-grants.ts";
import type { ToolResult } from "../../tools/tool.ts";
import { TOOLS } from "../../tools/toolbox.ts";
import type { CellHost, Declared, Records, RunConsent } from "../model/environment.ts";
import type { Grantee, GrantMode, GrantRecord } from "../model/grantee.ts";
import { identityOf, type Job, newRunId } from "../model/job.ts";
import { writableHosts } from "../model/permission.ts";
import { type GrantNeed, type GrantOutcome, type GrantSurroundings, type Refused, refuseHost } from "./judge.ts";
import { requestGrant } from "./request.ts";
import { parseAskedHost, requestHost } from "./request-host.ts";

const directory = z.strictObject({
  path: z.string().min(1).max(4096),
  mode: z.enum(["read", "write"]).default("read"),
});
const host = z.strictObject({ host: z.string().min(1).max(300), reason: z.string().min(1).max(500).optional() });
const body = z.union([directory, host]);

/** What a program in a cell asks for at its run's socket: a directory, or a host of the network. */
export type AccessRequest =
  | { readonly path: string; readonly mode: GrantMode }
  | { readonly host: string; readonly reason?: string | undefined };

export type AccessAnswer =
  | {
      readonly granted: true;
      readonly path: string;
      readonly mode: GrantMode;
      readonly scope: "tree" | "session" | "had";
      readonly note: string;
    }
  | {
      readonly granted: true;
      /** In the form in which it is reached. */
      readonly host: string;
      readonly scope: "once" | "tree" | "session" | "had";
    }
  | { readonly granted: false; readonly code: string; readonly message: string };

/** A request as the socket takes it, or what is wrong with it. */
export function parseAccessBody(raw: unknown): AccessRequest | string {
  const parsed = examine(body, raw);
  return parsed.success ? parsed.data : `The request for access is not valid: ${firstFaults(parsed.error)}`;
}

const NOTE =
  "This container does not show it. Tools and `exec` at this socket can use it, and workers that are called from now on.";

/** Asks for a directory or a host for the rest of the run. `only`: the hosts that the command that asks is limited to. */
export async function requestAccess(
  request: AccessRequest,
  grantee: Grantee,
  around: GrantSurroundings,
  signal: AbortSignal,
  only: readonly string[] | null,
): Promise<AccessAnswer> {
  if ("path" in request) return await requestDirectory(request, grantee, around, signal);
  const { host: named, reason = "to connect to it" } = request;
  const beyond = only === null ? null : beyondCommand(named, commandSandbox(grantee.sandbox, only));
  const outcome = beyond ?? (await requestHost({ host: named, why: reason }, grantee, around, signal));
  if (outcome.ok) return { granted: true, host: outcome.to, scope: outcome.scope ?? "had" };
  const { code, message } = outcome.refusal;
  return { granted: false, code, message };
}

/** A command that was given less than its run asks for no more. What is no host is refused by the request itself. */
function beyondCommand(host: string, { network }: Sandbox): Refused | null {
  const parsed = parseAskedHost(host);
  if (!parsed.ok || reachesHost(network, parsed.to)) return null;
  const because = "The command that asks was given less network than its worker.";
  return refuseHost("GRANT_LIMITED_COMMAND", parsed.to, because, "Ask outside of this command.");
}

/** For programs that use no tool on the directory themselves. */
async function requestDirectory(
  { path: raw, mode }: Extract<AccessRequest, { readonly path: string }>,
  grantee: Grantee,
  around: GrantSurroundings,
  signal: AbortSignal,
): Promise<AccessAnswer> {
  const parsed = parsePathIn(grantee.sandbox, raw);
  if (!parsed.ok) {
    const readable = readablePaths(grantee.sandbox).join(", ") || "none";
    const message = `Cannot access that path: ${parsed.reason}.\nReadable paths: ${readable}`;
    return { granted: false, code: "PATH_NOT_IN_SANDBOX", message };
  }
  const { path } = parsed;
  const need = { path, mode, why: `to ${mode} '${path}'`, lastingOnly: true } as const;
  const outcome = await requestGrant(need, grantee, around, signal);
  if (!outcome.ok) {
    const { code, message } = outcome.refusal;
    return { granted: false, code, message };
  }
  if (outcome.scope !== "once")
    return { granted: true, path: outcome.directory, mode, scope: outcome.scope ?? "had", note: NOTE };
  const message =
    "It was approved for one operation only, but this request is for the rest of the run. Use a tool on the path: it asks by itself.";
  return { granted: false, code: "GRANT_FOR_ONE_OPERATION", message };
}

/** The user's own yes to what is given without a question. It does not cover what programs of the host execute: for that a person is shown what it is. */
export function givingApprover(by: string): Approver {
  return {
    async decide(request) {
      const [executed] = request.hostExecuted ?? [];
      if (executed !== undefined) return denied(whyNotCovered(executed, "a grant without a question"));
      return { outcome: "approved", scope: "tree", reason: `${by} granted it without being asked`, by };
    },
  };
}

/** Takes what a user gives to a run without being asked, as if the run had asked: whatever would refuse that refuses this. `agreed`: by whom. */
export function takingGiven(
  grantee: Grantee,
  around: GrantSurroundings,
  agreed: (by: string) => Approver,
  signal: AbortSignal,
): TakeGiven {
  return async ({ path: raw, mode, by }) => {
    const no = (code: string, message: string) => ({ granted: false, code, message }) as const;
    try {
      const parsed = parsePathIn(grantee.sandbox, raw);
      if (!parsed.ok) return no("PATH_NOT_IN_SANDBOX", `The worker could not ask for that path: ${parsed.reason}.`);
      const { path } = parsed;
      let id: string | null = null;
      const approver: Approver = {
        async decide(request, over) {
          if (request.directory === path) return await agreed(by).decide(request, over);
          return denied(`it is no directory. To give the one around it, name ${request.directory}`);
        },
      };
      const newId = (): string => {
        id = around.newId();
        return id;
      };
      const need = { path, mode, why: `${by} gives it`, lastingOnly: true } as const;
      const outcome = await requestGrant(need, grantee, { ...around, approver, newId }, signal);
      if (!outcome.ok) return no(outcome.refusal.code, outcome.refusal.because);
      return { granted: true, id: outcome.scope === null ? null : id, directory: outcome.directory, mode };
    } catch (error) {
      return no("ENDED", (error as Error).message);
    }
  };
}

/** What granting needs, for one run: every grant is in the audit trail before it is used. */
export function surroundingsOf(job: Job, env: Declared & CellHost & RunConsent & Records): GrantSurroundings {
  const { project, refusedSources, approver, grants } = env;
  return {
    project,
    refusedSources,
    writableHosts: () => writableHosts(project),
    approver,
    ledger: grants,
    newId: newRunId,
    now: () => new Date(),
    async record(record) {
      const { id, run, root, worker, scope, granted } = record;
      const about = { type: "grant", run, root, worker, grant: id, scope, levels: granted } as const;
      try {
        await env.audit.append({ ...about, ...whatOf(record) });
        return true;
      } catch (error) {
        env.emit({ type: "trouble", ...identityOf(job), detail: (error as Error).message });
        return false;
      }
    },
  };
}

function whatOf(record: GrantRecord) {
  if ("to" in record) return { to: record.to };
  const { directory, host, mode } = record;
  return { directory, host, mode: mode === "write" ? "rw" : "ro" } as const;
}

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
