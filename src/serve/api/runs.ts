import type { RecordedCall, RunRecord } from "../../history/run-record.ts";
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
import { MAX_CHANGESETS } from "../../operations/contract/approvals.ts";
import { runOperations } from "../../operations/contract/runs.ts";
import type { AnswerOf, Given } from "../../operations/contract/table.ts";
import { RequestError } from "../../operations/request-error.ts";
import { listRuns, runOutput, showRun, stopRun } from "../../operations/runs.ts";
import type { RunResult } from "../../run/model/result.ts";
import type { LiveGrant } from "../../state/live-grants.ts";
import { present } from "../../text/present.ts";
import { ownerOf } from "../http/admission.ts";
import { tarOf } from "../http/answer.ts";
import { ServiceFault } from "../http/fault.ts";
import { jsonIn, readForm, type UploadedFile } from "../http/multipart.ts";
import { checkedInput, type Handlers } from "../http/router.ts";
import { eventsOf, ownedRun, refusePolicy, refuseStopping, type Served, waited } from "./owned.ts";

type Order = Given<"runs.start", "body">;

export function runHandlers(served: Served): Handlers<"runs"> {
  const { projects, runs, logs, uploads, uploadShares, over } = served;
  return {
    async "runs.start"({ body, caller, request, take }) {
      refuseStopping(over);
      const checkedOrder = (given: Order) => {
        refusePolicy(given.policy, caller);
        return { given, project: projects.named(given.project) };
      };
      const start = async (
        { given, project }: ReturnType<typeof checkedOrder>,
        attachments: readonly UploadedFile[],
        ended: () => Promise<void>,
      ) => {
        const { worker, arguments: words, input, policy = null, continues } = given;
        const more = present({ continues });
        const id = await runs.start({ project, worker, words, input, attachments, policy, ...more, ended });
        return { run: id, project: project.name };
      };
      if (body !== undefined) return await start(checkedOrder(body), [], async () => {});
      const { socket } = request;
      const part = uploadShares.open(ownerOf(caller), () => socket.destroy());
      const batch = await uploads.batch(part);
      const end = () => batch[Symbol.asyncDispose]();
      let asked: ReturnType<typeof checkedOrder> | null = null;
      const begin = async (json: string): Promise<void> => {
        const given = checkedInput(runOperations["runs.start"].body, jsonIn(json, "the part `request`"), "request");
        asked = checkedOrder(given as Order);
        const { project } = asked;
        await runs.check({ project, worker: asked.given.worker, words: asked.given.arguments });
      };
      const files = await readForm(request, { begin, keep: (content) => batch.keep(content), take }).catch(
        async (error: unknown) => {
          await end();
          throw error;
        },
      );
      // They are attachments of the run from now on, and stay until it ends.
      part.keep();
      return await start(asked as unknown as ReturnType<typeof checkedOrder>, files, end);
    },
    async "runs.list"({ query: { project, limit = 50, worker, status, calls } }) {
      const filter = {
        limit: limit + 1,
        ...present({ worker, status }),
      };
      const lists = await Promise.all(
        projects.chosen(project).map(async (one) => {
          const { runs: found, unreadable } = await listRuns(one.place, filter);
          const shown = found.map((record) => shownRun(record, one.name, logs));
          return { found: calls ? shown : shown.map((record) => ({ ...record, calls: [] })), unreadable };
        }),
      );
      const all = lists.flatMap(({ found }) => found).toSorted((a, b) => (a.queuedAt < b.queuedAt ? 1 : -1));
      const unreadable = lists.reduce((sum, list) => sum + list.unreadable, 0);
      return { runs: all.slice(0, limit), unreadable, more: all.length > limit };
    },
    async "runs.show"({ params }) {
      const { record, project } = await ownedRun(projects, params.run);
      return shownRun(record, project.name, logs);
    },
    async "runs.result"({ params, query: { wait = 0 }, gone }) {
      const { record } = await ownedRun(projects, params.run);
      const ending = runs.ending(params.run);
      if (ending !== null) await waited(ending, wait, gone);
      const json = await logs.result(params.run);
      if (json !== null) return JSON.parse(json) as RunResult;
      if (runs.ending(params.run) !== null)
        throw new ServiceFault(409, "RUN_NOT_OVER", `run ${params.run} is running; ask again, with \`wait\``);
      throw new ServiceFault(409, "NO_EVENTS", `the service has no result of this run, which is ${record.status}`);
    },
    async "runs.stop"({ params }) {
      const { project } = await ownedRun(projects, params.run);
      return await stopRun(project.place, params.run);
    },
    async "runs.events"({ params, request, gone }) {
      await ownedRun(projects, params.run);
      return await eventsOf(params.run, logs, { request, gone, over });
    },
    async "runs.output"({ params, query: { stream, service, lines, follow }, gone }) {
      const { project } = await ownedRun(projects, params.run);
      const signal = AbortSignal.any([gone, over]);
      const how = { streams: [stream], follow, signal, ...present({ lines, service }) } as const;
      return { pieces: bytesOf(await runOutput(project.place, params.run, how)) };
    },
  };
}

/** Without the folder of the project, and the process. */
function shownRun(
  { owner: _, project: __, ...record }: RunRecord,
  project: string,
  logs: Served["logs"],
): AnswerOf<"runs.show"> {
  return { ...record, project, callCount: countOf(record), hasEvents: logs.has(record.id) };
}

/** Of the whole tree, without its root. */
function countOf({ calls }: Pick<RecordedCall, "calls">): number {
  return calls.reduce((sum, call) => sum + 1 + countOf(call), 0);
}

async function* bytesOf(output: AsyncIterable<{ readonly bytes: Buffer; readonly missingBytes: number }>) {
  for await (const { bytes, missingBytes } of output) {
    if (missingBytes > 0) yield `\n[${missingBytes} bytes are not kept]\n`;
    yield bytes;
  }
}

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
