import type { Socket } from "node:net";
import type { Duplex } from "node:stream";
import PQueue from "p-queue";
import type { ServiceDefinition } from "../../declarations/worker/services-yaml.ts";
import type { WorkerDefinition } from "../../declarations/worker/worker.ts";
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
 * Starts the services of a run's worker (`worker.services`), all at once, and settles when every one is ready. It is what runs, sessions,
 * items of fleets and jobs of CI have: whoever performs a job (`run.ts`) has them too.
 *
 * Each has a cell and a network namespace of its own, and what it has is derived from `grantee`'s sandbox, as for a call, less all writing and
 * all network. Nothing is shared with the worker's cell: Corral listens there at the ports that `services` names, and carries each connection
 * to the same port of the service's cell. Rejects with `EngineTrouble` and with the reason of the job's signal.
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
  await using running = new Disposables();
  const over = new AbortController();
  running.use({ [Symbol.dispose]: () => over.abort(new Error("the run has ended")) });
  const signal = AbortSignal.any([job.signal, over.signal]);
  const starts = await Promise.allSettled(
    judged.map(async (one) => {
      const { name } = one.definition;
      const onEnd = (how: string): void =>
        env.emit({ type: "trouble", ...identityOf(job), detail: `the service ${name} ${how} while the run goes on` });
      try {
        const start = await startService(one, env, { signal, onEnd });
        // One that cannot be ready ends the waiting for the others.
        if (start.ok) running.use(start.service);
        else over.abort(NOT_ALL);
        return start;
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
  const started = starts.flatMap((start) => (start.status === "fulfilled" ? [start.value] : []));
  violations.push(...started.flatMap((start) => (start.ok ? [] : start.violations)));
  if (violations.length > 0) return refused(violations);
  job.signal.throwIfAborted();
  const ready = started.flatMap((start) => (start.ok ? [start.service] : []));
  const kept = running.move();
  return {
    ok: true,
    cell: carried(ready, over.signal),
    get ended() {
      return ready.flatMap(({ definition: { name }, end }) => (end === null ? [] : [`the service ${name} ${end}`]));
    },
    async [Symbol.asyncDispose]() {
      over.abort(new Error("the run has ended"));
      await kept[Symbol.asyncDispose]();
    },
  };
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

/** Carries connections from the loopback device of the worker's cells to the same ports of the services. */
function carried(services: readonly RunningService[], signal: AbortSignal): CellServices {
  const byPort = new Map(
    services.flatMap((service) => {
      const queue = new PQueue({ concurrency: MAX_CONNECTIONS });
      return service.definition.ports.map((port) => [port, { service, queue }] as const);
    }),
  );
  return {
    names: services.map(({ definition }) => definition.name),
    places: [...byPort.keys()].map((port) => ({ address: LOOPBACK, port, host: null })),
    accept({ port }, socket) {
      // Each end reports its own error; the other one sees that the connection closes.
      socket.on("error", () => {});
      const found = byPort.get(port);
      if (found === undefined || found.queue.size >= MAX_WAITING || signal.aborted) socket.destroy();
      else void found.queue.add(() => carry(socket, port, found.service, signal));
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
