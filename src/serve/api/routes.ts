import { setTimeout as sleep } from "node:timers/promises";
import type { SealedRecord } from "../../audit/seal.ts";
import { DeclarationError } from "../../declarations/yaml/problem.ts";
import { countWaiting } from "../../operations/approvals.ts";
import { auditPage } from "../../operations/audit.ts";
import { CONTRACT } from "../../operations/contract/table.ts";
import type { QueueMachines } from "../../operations/fleets.ts";
import { listImages } from "../../operations/images.ts";
import { checkProject } from "../../operations/implied-project.ts";
import { examineMachine, listCells } from "../../operations/machine.ts";
import { measureState } from "../../operations/stored/stored-state.ts";
import { explainWorker, listWorkers, workerNamed } from "../../operations/workers.ts";
import { present } from "../../text/present.ts";
import { hiddenIn, withoutHostPaths } from "../http/answer.ts";
import { type Handlers, permits, type Route } from "../http/router.ts";
import type { QueueSize } from "../metrics/metrics.ts";
import type { ServedProject } from "../model/served.ts";
import { ciHandlers } from "./ci.ts";
import { conversionHandlers } from "./conversions.ts";
import { fleetHandlers } from "./fleets.ts";
import { openApi } from "./openapi.ts";
import type { Served } from "./owned.ts";
import { portHandlers } from "./ports.ts";
import { approvalHandlers, changesetHandlers, grantHandlers, runHandlers } from "./runs.ts";
import { sessionHandlers } from "./sessions.ts";
import { snapshotHandlers } from "./snapshots.ts";

type Env = Readonly<Record<string, string | undefined>>;

/** All operations with what they do. One that nothing does, or that is not in the contract, does not compile. */
export function routesOf(served: Served, engineEnv: Env, version: string): Route[] {
  const handlers: Handlers<string> = {
    ...hostHandlers(served, engineEnv, version),
    ...auditHandlers(served),
    ...projectHandlers(served, engineEnv),
    ...runHandlers(served),
    ...fleetHandlers(served),
    ...conversionHandlers(served),
    ...ciHandlers(served),
    ...changesetHandlers(served),
    ...approvalHandlers(served),
    ...grantHandlers(served),
    ...sessionHandlers(served),
    ...portHandlers(served),
    ...snapshotHandlers(served),
  };
  return Object.values(CONTRACT).map((operation) => {
    return { ...operation, handle: handlers[operation.name] as Route["handle"] };
  });
}

const QUEUE_MS = 3000;

function hostHandlers(served: Served, engineEnv: Env, version: string): Handlers<"host"> {
  const { stateDir, projects, metrics, sessions, machines: queues, over, hide } = served;
  let looking: ReturnType<typeof examineMachine> | null = null;
  /** It starts programs and takes long: all that ask meanwhile get the same answer. */
  const look = (): ReturnType<typeof examineMachine> => {
    looking ??= examineMachine({ stateDir, engineEnv }).finally(() => {
      looking = null;
    });
    return looking;
  };
  let measuring: ReturnType<typeof measureState> | null = null;
  const measure = (): ReturnType<typeof measureState> => {
    measuring ??= measureState({ stateDir, engineEnv }).finally(() => {
      measuring = null;
    });
    return measuring;
  };
  const document = openApi(version);
  return {
    "host.health": async () => ({ status: over.aborted ? "stopping" : "ok" }),
    "host.caller": async ({ caller: { name, roles } }) => ({ name, roles, version }),
    async "host.machine"({ caller }) {
      const { ok, findings } = await look();
      const shown = permits(caller, "admin")
        ? findings
        : findings.map((one) => ({ ...one, detail: withoutHostPaths(one.detail, stateDir) }));
      return { ok, findings: shown };
    },
    async "host.machines"({ query: { project, limit = 200 } }) {
      const all = await queues.list(projects.chosen(project).map(({ dir }) => dir));
      const machines = (all ?? []).slice(0, limit).map(({ fleets, ...one }) => ({
        ...one,
        fleets: fleets.map(({ projectDir, ...fleet }) => ({ ...fleet, project: projects.nameOf(projectDir) ?? "" })),
      }));
      return { machines, more: (all?.length ?? 0) > limit, hasQueue: all !== null };
    },
    async "host.cells"() {
      const cells = await listCells({ stateDir, engineEnv });
      return { cells: cells.map(({ owner: { pid }, ...cell }) => ({ ...cell, owner: { pid } })) };
    },
    "host.stored": async () => ({
      kinds: (await measure()).map((kind) => ({ ...kind, trouble: kind.trouble && hide(kind.trouble) })),
    }),
    async "host.metrics"() {
      const waiting: string[] = [];
      for (const { dir, name } of projects.all)
        waiting.push(...Array<string>(await countWaiting(stateDir, dir)).fill(name));
      const questions = () => waiting;
      const sizes = await Promise.all(projects.all.map((project) => queueSize(queues, project)));
      const machines = sizes.filter((size) => size !== null);
      const text = await metrics.text({
        questions,
        sessions: () => sessions.all.map(({ project }) => project),
        machines,
      });
      return { headers: { "content-type": metrics.contentType }, pieces: once(text) };
    },
    "host.openapi": async () => document,
  };
}

/** Null: it has no queue, or one that does not answer at once. The other metrics must not wait for it. */
async function queueSize(queues: QueueMachines, { name, dir }: ServedProject): Promise<QueueSize | null> {
  const asked = queues.list([dir]).catch(() => null);
  const machines = await Promise.race([asked, sleep(QUEUE_MS, null, { ref: false })]);
  if (machines === null) return null;
  return { project: name, machines: machines.length, slots: machines.reduce((sum, { slots }) => sum + slots, 0) };
}

async function* once(text: string): AsyncGenerator<string> {
  yield text;
}

function auditHandlers({ projects }: Served): Handlers<"audit"> {
  return {
    async "audit.page"({ query: { project, cursor, limit = 100, run, type, since } }) {
      const filter = present({ run, type, since: since === undefined ? undefined : Date.parse(since) });
      const page = await auditPage(projects.named(project).place, filter, { limit, ...present({ before: cursor }) });
      return { ...page, records: page.records.map(withoutHostPath) };
    },
  };
}

/** A grant names the directory of the host. Its seal is over the whole: `corral audit verify` checks it on the machine. */
function withoutHostPath(record: SealedRecord): SealedRecord {
  if (record.type !== "grant" || !("host" in record)) return record;
  const { host: _, ...shown } = record;
  return shown;
}

function projectHandlers(
  { projects, stateDir, hide }: Served,
  engineEnv: Readonly<Record<string, string | undefined>>,
): Handlers<"projects" | "workers"> {
  return {
    "projects.list": async () => ({ projects: projects.all.map(({ name }) => ({ name })) }),
    async "projects.check"({ params }) {
      const report = await checkProject(projects.named(params.project).dir, { stateDir, engineEnv });
      return hiddenIn(report, hide) as typeof report;
    },
    async "projects.images"({ params }) {
      const problems: string[] = [];
      const project = await projects
        .named(params.project)
        .load()
        .catch((error: unknown) => {
          if (!(error instanceof DeclarationError)) throw error;
          problems.push(hide(error.message));
          return null;
        });
      return { images: await listImages({ stateDir, engineEnv, project }), problems };
    },
    async "workers.list"({ params }) {
      const { workers, problems } = await listWorkers(projects.named(params.project).dir, engineEnv);
      return { workers: workers.map(({ file: _, ...one }) => one), problems };
    },
    async "workers.explain"({ params }) {
      const project = await projects.named(params.project).load();
      const how = { project, policy: null, stateDir, engineEnv };
      return withoutHostMembers(await explainWorker(workerNamed(params.worker, project), how));
    },
  };
}

/** What a mount shows, and where its project is, is the host's business: a client knows it by its path in the cell. */
function withoutHostMembers<Shown>(shown: Shown): Shown {
  const isHostPath = (key: string, value: unknown): boolean =>
    ["host", "origin", "project", "viewOf"].includes(key) && typeof value === "string" && value.startsWith("/");
  return JSON.parse(JSON.stringify(shown, (key, value) => (isHostPath(key, value) ? undefined : value)));
}
