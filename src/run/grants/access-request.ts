import { z } from "zod";
import { type Approver, denied, whyNotCovered } from "../../approval/approver.ts";
import { examine, firstFaults } from "../../json/parse-json.ts";
import { parsePathIn, readablePaths } from "../../sandbox/access.ts";
import { reachesHost } from "../../sandbox/network/hosts.ts";
import { commandSandbox, type Sandbox } from "../../sandbox/sandbox.ts";
import type { TakeGiven } from "../../state/given-grants.ts";
import type { Grantee, GrantMode } from "../model/grantee.ts";
import { type GrantSurroundings, type Refused, refuseHost } from "./judge.ts";
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
