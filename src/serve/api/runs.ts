import { setTimeout as sleep } from "node:timers/promises";
import { z } from "zod";
import type { RecordedCall, RunRecord } from "../../history/run-record.ts";
import { runOutput } from "../../operations/run-output.ts";
import { listRuns, stopRun } from "../../operations/runs.ts";
import { ServiceFault } from "../http/fault.ts";
import { jsonIn, readForm, type UploadedFile } from "../http/multipart.ts";
import { type Route, route } from "../http/route.ts";
import { checkedInput } from "../http/router.ts";
import { ownerOf } from "../http/shares.ts";
import { eventsOf, ownedRun, refusePolicy, refuseStopping, type Served } from "./owned.ts";
import {
  count,
  EVENTS,
  flag,
  inProject,
  more,
  policyName,
  projectName,
  result,
  run,
  runId,
  workerName,
} from "./shapes.ts";

const MAX_INPUT_BYTES = 8 * 1024 ** 2;
const MAX_LISTED = 500;
const MAX_WAIT_S = 60;

const order = z
  .strictObject({
    project: projectName.optional(),
    worker: workerName,
    input: z.unknown().optional().describe("JSON for its standard input, or for an agent to read"),
    arguments: z.array(z.string().max(100_000)).max(1000).default([]),
    continues: runId.optional().describe("The run of an agent whose conversation is continued"),
    policy: policyName.optional(),
  })
  .meta({ id: "RunOrder" });

const inRun = z.strictObject({ run: runId });
const stopped = z
  .object({ run: runId, outcome: z.enum(["ended", "stopped", "asked"]), status: z.string() })
  .meta({ id: "StoppedRun" });

export function runRoutes(served: Served): Route[] {
  const { projects, runs, logs, uploads, uploadShares, over } = served;
  return [
    route(
      {
        method: "POST",
        path: "/v1/runs",
        role: "run",
        summary: "Start a run. Attachments come as the files of a form, whose part `request` is the JSON.",
        body: order,
        maxBodyBytes: MAX_INPUT_BYTES,
        takesForm: true,
        answers: { 202: z.object({ run: runId, project: projectName }).meta({ id: "StartedRun" }) },
        faults: [404, 409, 413, 415, 422, 503],
      },
      async ({ body, caller, request, take }) => {
        refuseStopping(over);
        const checkedOrder = (given: z.output<typeof order>) => {
          refusePolicy(given.policy, caller);
          return { given, project: projects.named(given.project) };
        };
        const start = async (
          { given, project }: ReturnType<typeof checkedOrder>,
          attachments: readonly UploadedFile[],
          ended: () => Promise<void>,
        ) => {
          const { worker, arguments: words, input, policy = null, continues } = given;
          const more = continues === undefined ? {} : { continues };
          const id = await runs.start({ project, worker, words, input, attachments, policy, ...more, ended });
          return { status: 202, json: { run: id, project: project.name } };
        };
        if (body !== undefined) return await start(checkedOrder(body), [], async () => {});
        const { socket } = request;
        const part = uploadShares.open(ownerOf(caller), () => socket.destroy());
        const batch = await uploads.batch(part);
        const end = () => batch[Symbol.asyncDispose]();
        let asked: ReturnType<typeof checkedOrder> | null = null;
        const begin = async (json: string): Promise<void> => {
          asked = checkedOrder(
            checkedInput(order, jsonIn(json, "the part `request`"), "request") as z.output<typeof order>,
          );
          const { given, project } = asked;
          await runs.check({ project, worker: given.worker, words: given.arguments });
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
    ),
    route(
      {
        method: "GET",
        path: "/v1/runs",
        role: "read",
        summary: "List runs, the newest first, also those that were not started by the service.",
        query: z.strictObject({
          ...inProject,
          worker: workerName.optional(),
          status: z.string().max(40).optional(),
          limit: count(1, MAX_LISTED).optional(),
          calls: flag.default(true).describe("false: without the calls of each run, which may be many"),
        }),
        answers: { 200: z.object({ runs: z.array(run), unreadable: z.int(), more }).meta({ id: "RunList" }) },
      },
      async ({ query: { project, limit = 50, worker, status, calls } }) => {
        const filter = {
          limit: limit + 1,
          ...(worker === undefined ? {} : { worker }),
          ...(status === undefined ? {} : { status }),
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
        return { status: 200, json: { runs: all.slice(0, limit), unreadable, more: all.length > limit } };
      },
    ),
    route(
      {
        method: "GET",
        path: "/v1/runs/{run}",
        role: "read",
        summary: "Show a run and the runs that it called.",
        params: inRun,
        answers: { 200: run },
        faults: [404],
      },
      async ({ params }) => {
        const { record, project } = await ownedRun(projects, params.run);
        return { status: 200, json: shownRun(record, project.name) };
      },
    ),
    route(
      {
        method: "GET",
        path: "/v1/runs/{run}/result",
        role: "read",
        summary: "Show the result of a run that the service has started, and wait for it for `wait` seconds.",
        params: inRun,
        query: z.strictObject({ wait: count(0, MAX_WAIT_S).optional() }),
        isLasting: true,
        answers: { 200: result },
        faults: [404, 409],
      },
      async ({ params, query: { wait = 0 }, gone }) => {
        const { record } = await ownedRun(projects, params.run);
        const ending = runs.ending(params.run);
        if (ending !== null) await waited(ending, wait, gone);
        const json = await logs.result(params.run);
        if (json !== null) return { status: 200, json: JSON.parse(json) };
        if (runs.ending(params.run) !== null)
          throw new ServiceFault(409, "RUN_NOT_OVER", `run ${params.run} is running; ask again, with \`wait\``);
        throw new ServiceFault(409, "NO_EVENTS", `the service has no result of this run, which is ${record.status}`);
      },
    ),
    route(
      {
        method: "DELETE",
        path: "/v1/runs/{run}",
        role: "run",
        summary: "Stop a run. It ends as cancelled, and what it wrote waits.",
        params: inRun,
        answers: { 200: stopped },
        faults: [404],
      },
      async ({ params }) => {
        const { project } = await ownedRun(projects, params.run);
        return { status: 200, json: await stopRun(project.place, params.run) };
      },
    ),
    route(
      {
        method: "GET",
        path: "/v1/runs/{run}/events",
        role: "read",
        summary: "Follow the events of a run that the service has started, and of all runs below it.",
        params: inRun,
        isLasting: true,
        answers: { 200: EVENTS, 204: null },
        faults: [404, 409],
      },
      async ({ params, request, gone }) => {
        await ownedRun(projects, params.run);
        return await eventsOf(params.run, logs, { request, gone, over });
      },
    ),
    route(
      {
        method: "GET",
        path: "/v1/runs/{run}/output",
        role: "read",
        summary: "Send what a run printed, as bytes; with `follow` until it has ended.",
        params: inRun,
        query: z.strictObject({
          stream: z.enum(["stdout", "stderr"]).default("stdout"),
          lines: count(0, 1_000_000).optional(),
          follow: flag.default(false),
        }),
        isLasting: true,
        answers: { 200: { contentType: "application/octet-stream", description: "The bytes of one stream" } },
        faults: [404],
      },
      async ({ params, query: { stream, lines, follow }, gone }) => {
        const { project } = await ownedRun(projects, params.run);
        const signal = AbortSignal.any([gone, over]);
        const how = { streams: [stream], follow, signal, ...(lines === undefined ? {} : { lines }) } as const;
        const output = await runOutput(project.place, params.run, how);
        return { status: 200, contentType: "application/octet-stream", pieces: bytesOf(output) };
      },
    ),
  ];
}

/** Without the folder of the project, and the process. */
function shownRun({ owner: _, project: __, ...record }: RunRecord, project: string) {
  return { ...record, project, callCount: countOf(record) };
}

/** Of the whole tree, without its root. */
function countOf({ calls }: Pick<RecordedCall, "calls">): number {
  return calls.reduce((sum, call) => sum + 1 + countOf(call), 0);
}

async function waited(ending: Promise<void>, seconds: number, gone: AbortSignal): Promise<void> {
  const timer = new AbortController();
  const signal = AbortSignal.any([gone, timer.signal]);
  await Promise.race([ending.catch(() => {}), sleep(seconds * 1000, undefined, { signal }).catch(() => {})]);
  timer.abort();
}

async function* bytesOf(output: AsyncIterable<{ readonly bytes: Buffer; readonly missingBytes: number }>) {
  for await (const { bytes, missingBytes } of output) {
    if (missingBytes > 0) yield `\n[${missingBytes} bytes are not kept]\n`;
    yield bytes;
  }
}
