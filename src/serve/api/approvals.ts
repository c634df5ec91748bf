import { type Approval, decideApproval, pageOfApprovals, showApproval } from "../../operations/approvals.ts";
import type { AnswerOf } from "../../operations/contract/table.ts";
import { listGrants, revokeGrant } from "../../operations/grants.ts";
import { RequestError } from "../../operations/request-error.ts";
import { showRun } from "../../operations/runs.ts";
import type { LiveGrant } from "../../state/live-grants.ts";
import { present } from "../../text/present.ts";
import type { Handlers } from "../http/route.ts";
import type { Served } from "./owned.ts";

const DEFAULT_LISTED = 100;

export function approvalHandlers({ stateDir, projects }: Served): Handlers<"approvals"> {
  const dirs = (): string[] => projects.all.map(({ dir }) => dir);
  const shown = (one: Approval) => ({ ...one, project: projects.nameOf(one.project) ?? "" });
  return {
    async "approvals.list"({ query: { project, root, state, cursor, limit = DEFAULT_LISTED } }) {
      const chosen = projects.chosen(project).map(({ dir }) => dir);
      const which = { state, projects: chosen, limit, ...present({ root, after: cursor }) };
      const { approvals, next } = await pageOfApprovals(stateDir, which);
      return { approvals: approvals.map(shown), next };
    },
    "approvals.show": async ({ params }) => shown(await showApproval(stateDir, params.approval, dirs())),
    async "approvals.decide"({ params: { approval: id }, body: { answer, digest, directory }, caller }) {
      const how = { answer, digest, by: caller.name, via: "service", ...present({ directory }) } as const;
      return shown(await decideApproval(stateDir, id, how, dirs()));
    },
  };
}

export function grantHandlers({ projects, stateDir }: Served): Handlers<"grants"> {
  /** Those of runs of served projects, without the paths of the host. */
  const owned = async () => {
    const found: AnswerOf<"grants.list">["grants"][number][] = [];
    for (const one of await listGrants(stateDir)) {
      const project = await projectOf(one);
      if (project !== null) found.push({ ...("host" in one ? without(one) : one), project });
    }
    return found;
  };
  const projectOf = async ({ root }: LiveGrant): Promise<string | null> => {
    for (const project of projects.all) {
      const record = await showRun(project.place, root).catch((error: unknown) => {
        if (error instanceof RequestError) return null;
        throw error;
      });
      if (record !== null) return projects.nameOf(record.project);
    }
    return null;
  };
  return {
    "grants.list": async () => ({ grants: await owned() }),
    async "grants.revoke"({ params }) {
      if (!(await owned()).some(({ id }) => id === params.grant))
        throw new RequestError("UNKNOWN_GRANT", params.grant, `there is no grant ${params.grant}`);
      return { id: await revokeGrant(stateDir, params.grant), outcome: "revoked" };
    },
  };
}

function without<G extends { readonly host: string }>({ host: _, ...grant }: G) {
  return grant;
}
