import { lookup } from "node:dns/promises";
import { chmod, mkdir, mkdtemp, rm, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import type { RunEvent } from "../../src/index.ts";
import { type Corral, openCorral } from "../../src/run/open/corral.ts";
import { run } from "../../src/run/run.ts";
import { ECHO } from "../project.ts";
import type { ServerPorts } from "./server.ts";

/** The names of the host for a cell, by the way in which they are reached. */
export const NAMES = {
  orders: "orders.bench.example",
  tunnel: "tunnel.bench.example",
  lookedInto: "looked-into.bench.example",
  proxy: "host.proxied.bench.example",
} as const;
/** A long list: each host is a listening socket of the cell. */
export const MANY_HOSTS = 50;

/** A project whose workers have an allow list or none. Disposing removes it. */
export interface CellProject extends AsyncDisposable {
  /** Settles when the worker has ended, and rejects if it failed. `onEvent` sees all that it does. */
  runToEnd(worker: WorkerName, onEvent?: (event: RunEvent) => void): Promise<void>;
}

export type WorkerName = "client" | "alone" | "one" | "many";

export async function openCellProject(
  client: string,
  { tls, raw }: ServerPorts[number],
  ordersPort: number,
  trusted: string,
): Promise<CellProject> {
  await using opening = new AsyncDisposableStack();
  const base = await mkdtemp(join(tmpdir(), "corral-bench-net-"));
  opening.defer(() => rm(base, { recursive: true, force: true }));
  await chmod(base, 0o755);
  const [projectDir, stateDir] = [join(base, "p"), join(base, "s")];
  await mkdir(join(projectDir, "workers"), { recursive: true });
  await chmod(projectDir, 0o755);
  const rule = (to: string, more: object = {}): object => ({ to, addresses: ["127.0.0.0/8"], ...more });
  const one = [rule(`${NAMES.tunnel}:${raw}`)];
  const reached = [
    ...one,
    rule(`${NAMES.orders}:${ordersPort}`),
    rule(`${NAMES.tunnel}:${tls}`),
    rule(`${NAMES.lookedInto}:${tls}`, { methods: ["GET"] }),
    rule(`*.proxied.bench.example:${tls}`),
    rule(`*.proxied.bench.example:${raw}`),
  ];
  const many = Array.from({ length: MANY_HOSTS }, (_, index) => rule(`host-${index}.bench.example:443`));
  const network = (allow: readonly object[]): object => ({ sandbox: { network: { allow } } });
  const command = ["node", "-e", client, "cell", NAMES.orders, String(ordersPort)];
  const workers: Record<WorkerName, object> = {
    client: { image: "corral/node", command, ...network(reached) },
    alone: { image: "corral/base", command: ECHO },
    one: { image: "corral/base", command: ECHO, ...network(one) },
    many: { image: "corral/base", command: ECHO, ...network(many) },
  };
  const allow = [...reached, ...many];
  const declared = { version: 1, policy: "default", sandbox: { zones: {}, network: { allow } } };
  await writeFile(join(projectDir, "corral.yaml"), JSON.stringify(declared));
  for (const [name, worker] of Object.entries(workers))
    await writeFile(
      join(projectDir, "workers", `${name}.worker`),
      `---\n${JSON.stringify({ name, ...worker })}\n---\n`,
    );
  const listeners = new Set<(event: RunEvent) => void>();
  const corral = opening.use(
    await openCorral({
      projectDir,
      stateDir,
      engineEnv: { ...process.env, CORRAL_DRIVER: "prefer-runc" },
      // All names mean this machine, and the resolver's usual work is part of what is measured.
      networkHost: {
        resolveName: async () => (await lookup("localhost", { all: true, family: 4 })).map(({ address }) => address),
        trustedRoots: async () => [trusted],
      },
      emit(event) {
        for (const listener of listeners) listener(event);
      },
    }),
  );
  const moved = opening.move();
  return {
    async runToEnd(worker, onEvent = () => {}) {
      listeners.add(onEvent);
      await runOnce(corral, worker).finally(() => listeners.delete(onEvent));
    },
    [Symbol.asyncDispose]: () => moved.disposeAsync(),
  };
}

async function runOnce({ project, environment }: Corral, name: WorkerName): Promise<void> {
  const worker = project.workers.get(name);
  if (worker === undefined) throw new Error(`the bench's project has no worker ${name}`);
  const { status, error, stderr } = await run({ worker, signal: new AbortController().signal }, environment);
  if (status !== "succeeded") throw new Error(`the worker ${name} is ${status}: ${error?.message ?? stderr}`);
}
