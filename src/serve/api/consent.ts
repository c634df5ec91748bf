import {
  type Approval,
  addGrant,
  decideApproval,
  listGrants,
  pageOfApprovals,
  revokeGrant,
  showApproval,
} from "../../operations/approvals.ts";
import { unknownChangeset } from "../../operations/changesets.ts";
import { MAX_CHANGESETS } from "../../operations/contract/changesets.ts";
import type { AnswerOf } from "../../operations/contract/table.ts";
import { RequestError } from "../../operations/request-error.ts";
import { showRun } from "../../operations/runs.ts";
import type { LiveGrant } from "../../state/live-grants.ts";
import { present } from "../../text/present.ts";
import type { Handlers } from "../http/router.ts";
import { tarOf } from "../http/tar.ts";
import type { Served } from "./owned.ts";

export function changesetHandlers({ projects, changesets }: Served): Handlers<"changesets"> {
  /** What belongs to no served project does not exist. @throws RequestError UNKNOWN_CHANGESET */
  const owned = async (id: string) => {
    const { mounts: _, project, ...found } = await changesets.show(id);
    const name = projects.nameOf(project);
    if (name === null) throw unknownChangeset(id, "there is no such changeset");
    return { ...found, project: name };
  };
  return {
    async "changesets.list"({ query: { project, worker, limit = MAX_CHANGESETS } }) {
      const names = new Map(projects.chosen(project).map(({ dir, name }) => [dir, name]));
      const all = (await changesets.list(null)).flatMap((one) => {
        const name = one.ok ? names.get(one.project) : undefined;
        if (!one.ok || name === undefined || (worker ?? one.worker) !== one.worker) return [];
        const { ok: _, ...rest } = one;
        return [{ ...rest, project: name }];
      });
      return { changesets: all.slice(0, limit), more: all.length > limit };
    },
    async "changesets.show"({ params: { changeset } }) {
      const found = await owned(changeset);
      return { ...found, diff: await changesets.diff(changeset) };
    },
    async "changesets.review"({ params: { changeset } }) {
      const { run, createdAt, project } = await owned(changeset);
      return { ...(await changesets.foresee(changeset)), run, createdAt, project };
    },
    async "changesets.files"({ params: { changeset } }) {
      await owned(changeset);
      const headers = { "content-disposition": `attachment; filename="${changeset}.tar"` };
      return { headers, pieces: tarOf(await changesets.files(changeset)) };
    },
    async "changesets.apply"({ params: { changeset }, body: { digest, only, which, hostExecuted = [] }, caller }) {
      await owned(changeset);
      const what = { ...present({ only, which }) };
      const how = { approval: "agreed", digest, by: caller.name, hostExecuted } as const;
      return await changesets.apply(changeset, { ...how, ...what });
    },
    async "changesets.discard"({ params: { changeset }, body, caller }) {
      await owned(changeset);
      await changesets.discard(changeset, { ...body, by: caller.name });
      return { id: changeset, outcome: "discarded" };
    },
  };
}

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
  const projectOf = async ({ root }: Pick<LiveGrant, "root">): Promise<string | null> => {
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
    "grants.add": async ({ params: { run }, body: { path, mode }, caller }) =>
      await addGrant(
        stateDir,
        run,
        { path, mode, by: caller.name },
        async (root) => (await projectOf({ root })) !== null,
      ),
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
