import type { Socket } from "node:net";
import type { Duplex } from "node:stream";
import PQueue from "p-queue";
import type { WorkerDefinition } from "../../declarations/worker/worker.ts";
import type { ServiceDefinition } from "../../declarations/worker/worker-yaml.ts";
import { LOOPBACK } from "../../isolation/plan/plan.ts";
import { Disposables } from "../../platform/disposables.ts";
import type { Sandbox } from "../../sandbox/sandbox.ts";
import type { Violation } from "../../sandbox/violation.ts";
import { describeViolation } from "../../sandbox/wording.ts";
import type { CellServices } from "../cell/run-network.ts";
import type { CellHost, Declared, Records } from "../model/environment.ts";
import type { Grantee } from "../model/grantee.ts";
import { identityOf, type Job, newRunId } from "../model/job.ts";
import { permissionOf } from "../model/permission.ts";
import { type JudgedService, type RunningService, startService } from "./service-cell.ts";

/** What runs beside one run. Disposing ends all of it. */
export type RunServices = AsyncDisposable &
  (
    | {
        readonly ok: true;
        /** For each cell of the run; null if it has none. */
        readonly cell: CellServices | null;
        /**
         * Settles when every one is ready, or with what is wrong: nothing of the worker may begin before. Rejects with `EngineTrouble` and with
         * the reason of the job's signal.
         */
        ready(): Promise<readonly Violation[]>;
        /** Which have ended by themselves, and how, in words; empty: none. */
        readonly ended: readonly string[];
      }
    | { readonly ok: false; readonly violations: readonly Violation[] }
  );

type Environment = Declared & CellHost & Records;

/** Connections to one service at once. Each is a command of its cell, which runs at most 32; others wait. */
const MAX_CONNECTIONS = 24;
const MAX_WAITING = 256;

/**
 * Begins to start the services of a run's worker (`worker.services`), all at once; meanwhile the worker's own cell can be made. It is what runs,
 * sessions, items of fleets and jobs of CI have: whoever performs a job (`run.ts`) has them too.
 *
 * Each has a cell and a network namespace of its own, and what it has is derived from `grantee`'s sandbox, as for a call, less all writing and
 * all network. Nothing is shared with the worker's cell: Corral listens there at the ports that `services` names, and carries each connection
 * to the same port of the service's cell.
 */
export async function openServices(
  job: Job,
  grantee: Pick<Grantee, "sandbox">,
  env: Environment,
): Promise<RunServices> {
  const { services = [] } = job.worker;
  const judged: JudgedService[] = [];
  const violations: Violation[] = [];
  for (const definition of services) {
    const one = await judgeService(definition, job, grantee, env);
    if (one.ok) judged.push(one.service);
    else violations.push(...one.violations);
  }
  if (violations.length > 0) return refused(violations);
  const ready: RunningService[] = [];
  const over = new AbortController();
  const starting = startAll(judged, job, env, { ready, over });
  starting.catch(() => {});
  return {
    ok: true,
    cell: carried(judged, ready, over.signal),
    ready: () => starting,
    get ended() {
      return ready.flatMap(({ definition: { name }, end }) => (end === null ? [] : [`the service ${name} ${end}`]));
    },
    async [Symbol.asyncDispose]() {
      over.abort(new Error("the run has ended"));
      await starting.catch(() => {});
      await using parts = new Disposables();
      for (const service of ready) parts.use(service);
    },
  };
}

/** Those that are ready are in `ready`, also if another one cannot be. */
async function startAll(
  judged: readonly JudgedService[],
  job: Job,
  env: Environment,
  { ready, over }: { readonly ready: RunningService[]; readonly over: AbortController },
): Promise<readonly Violation[]> {
  const signal = AbortSignal.any([job.signal, over.signal]);
  const starts = await Promise.allSettled(
    judged.map(async (one): Promise<readonly Violation[]> => {
      const { name } = one.definition;
      const onEnd = (how: string): void =>
        env.emit({ type: "trouble", ...identityOf(job), detail: `the service ${name} ${how} while the run goes on` });
      try {
        const start = await startService(one, env, { signal, onEnd });
        if (start.ok) {
          ready.push(start.service);
          return [];
        }
        // One that cannot be ready ends the waiting for the others.
        over.abort(NOT_ALL);
        return start.violations;
      } catch (error) {
        over.abort(NOT_ALL);
        throw error;
      }
    }),
  );
  const errors = starts.flatMap((start) =>
    start.status === "rejected" && start.reason !== NOT_ALL ? [start.reason] : [],
  );
  if (errors.length > 0) throw errors[0];
  const violations = starts.flatMap((start) => (start.status === "fulfilled" ? start.value : []));
  if (violations.length === 0) job.signal.throwIfAborted();
  return violations;
}

const NOT_ALL = new Error("another service of the run did not become ready");

function refused(violations: readonly Violation[]): RunServices {
  return { ok: false, violations, [Symbol.asyncDispose]: async () => {} };
}

type Judgement =
  | { readonly ok: true; readonly service: JudgedService }
  | { readonly ok: false; readonly violations: readonly Violation[] };

/** What a service would have, or everything that is wrong with it. `job`: of the run beside which it runs. */
export async function judgeService(
  definition: ServiceDefinition,
  job: Job,
  caller: Pick<Grantee, "sandbox">,
  env: Declared,
): Promise<Judgement> {
  const { name, worker: asked } = definition;
  const { workers } = env.project;
  const worker = workers.get(asked);
  if (worker === undefined)
    return { ok: false, violations: [{ code: "WORKER_UNKNOWN", asked, valid: [...workers.keys()].sort() }] };
  const derivation = await permissionOf(worker, caller.sandbox, null, env);
  const faults = [
    ...faultsOf(worker),
    ...(derivation.ok ? excessOf(derivation.sandbox) : derivation.violations.map(exceeding)),
  ];
  const violations = faults.map((fault): Violation => {
    return { code: "SERVICE_REFUSED", service: name, reason: `its worker ${asked} ${fault}` };
  });
  if (!derivation.ok || violations.length > 0) return { ok: false, violations };
  const own: Job = {
    run: newRunId(),
    root: job.root,
    parent: job.run,
    worker,
    callerSandbox: caller.sandbox,
    caller: null,
    path: [...job.path, worker.name],
    input: undefined,
    attachments: [],
    narrow: null,
    deadline: job.deadline,
    signal: job.signal,
    tree: job.tree,
    spending: null,
    callerMeter: null,
  };
  return { ok: true, service: { definition, job: own, sandbox: derivation.sandbox } };
}

function exceeding(violation: Violation): string {
  return `asks for more than this worker has. ${describeViolation(violation).replace(/\.$/, "")}`;
}

function faultsOf({ agent, command, services = [] }: WorkerDefinition): string[] {
  return [
    ...(agent !== undefined || command === null ? ["is an agent, and a service is a command"] : []),
    ...(services.length > 0 ? ["has services itself, and a service has none"] : []),
  ];
}

/** What a worker may have and a service not: so nothing leaves it but by its ports, and nothing of it is left. */
function excessOf({ mounts, network }: Sandbox): string[] {
  const written = mounts.filter(({ mode }) => mode === "rw").map(({ path }) => path);
  return [
    ...(written.length > 0
      ? [`writes in ${written.join(", ")}, and a service writes its own memory alone: \`readonly: true\``]
      : []),
    ...(network === false ? [] : ["asks for a network, and a service has none: `network: false`"]),
  ];
}

/** Carries connections from the loopback device of the worker's cells to the same ports of the services, of those that are `ready`. */
function carried(
  judged: readonly JudgedService[],
  ready: readonly RunningService[],
  signal: AbortSignal,
): CellServices {
  const byPort = new Map(
    judged.flatMap(({ definition }) => {
      const queue = new PQueue({ concurrency: MAX_CONNECTIONS });
      return definition.ports.map((port) => [port, { definition, queue }] as const);
    }),
  );
  return {
    names: judged.map(({ definition }) => definition.name),
    places: [...byPort.keys()].map((port) => ({ address: LOOPBACK, port, host: null })),
    accept({ port }, socket) {
      // Each end reports its own error; the other one sees that the connection closes.
      socket.on("error", () => {});
      const { definition, queue } = byPort.get(port) ?? {};
      const service = ready.find((one) => one.definition === definition);
      if (service === undefined || queue === undefined || queue.size >= MAX_WAITING || signal.aborted) socket.destroy();
      else void queue.add(() => carry(socket, port, service, signal));
    },
  };
}

/** Settles when the connection has ended. Never rejects. */
async function carry(socket: Socket, port: number, service: RunningService, signal: AbortSignal): Promise<void> {
  const end = (): void => void socket.destroy();
  signal.addEventListener("abort", end, { once: true });
  try {
    const inside = socket.destroyed ? null : await service.connect(port, signal).catch(() => null);
    if (inside === null) return end();
    await joined(socket, inside);
  } finally {
    signal.removeEventListener("abort", end);
    end();
  }
}

/** Passes on what either sends, until one of them is closed; then both are. */
async function joined(one: Duplex, other: Duplex): Promise<void> {
  await new Promise<void>((resolve) => {
    for (const each of [one, other]) each.on("error", () => {}).once("close", resolve);
    if (one.destroyed || other.destroyed) return resolve();
    one.pipe(other).pipe(one);
  });
  one.destroy();
  other.destroy();
}
