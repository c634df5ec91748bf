import type { RecordedCall, RunRecord } from "../../history/run-record.ts";
import { runOperations } from "../../operations/contract/runs.ts";
import type { AnswerOf, Given } from "../../operations/contract/table.ts";
import { listRuns, runOutput, stopRun } from "../../operations/runs.ts";
import type { RunResult } from "../../run/model/result.ts";
import { present } from "../../text/present.ts";
import { ServiceFault } from "../http/fault.ts";
import { jsonIn, readForm, type UploadedFile } from "../http/multipart.ts";
import { checkedInput, type Handlers } from "../http/router.ts";
import { ownerOf } from "../http/shares.ts";
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
          const shown = found.map((record) => shownRun(record, one.name));
          return { found: calls ? shown : shown.map((record) => ({ ...record, calls: [] })), unreadable };
        }),
      );
      const all = lists.flatMap(({ found }) => found).toSorted((a, b) => (a.queuedAt < b.queuedAt ? 1 : -1));
      const unreadable = lists.reduce((sum, list) => sum + list.unreadable, 0);
      return { runs: all.slice(0, limit), unreadable, more: all.length > limit };
    },
    async "runs.show"({ params }) {
      const { record, project } = await ownedRun(projects, params.run);
      return shownRun(record, project.name);
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
function shownRun({ owner: _, project: __, ...record }: RunRecord, project: string): AnswerOf<"runs.show"> {
  return { ...record, project, callCount: countOf(record) };
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
