/**
 * An orchestrator in a process of its own, for tests to kill: opens a project and runs one worker some times at once.
 * Its one argument is JSON, `{projectDir, stateDir, worker, runs, env?}`. Prints a line of JSON for each
 * event that tells how far it is: `{began: RUN}` when a worker has printed something, `{ended: RunResult}`, `{trouble}`.
 */
import { openCorral } from "../../src/run/open/corral.ts";
import { run } from "../../src/run/run.ts";

interface Order {
  readonly projectDir: string;
  readonly stateDir: string;
  readonly worker: string;
  readonly runs: number;
  readonly env?: Readonly<Record<string, string>>;
}

const order = JSON.parse(process.argv[2] ?? "") as Order;
const say = (line: unknown): void => void process.stdout.write(`${JSON.stringify(line)}\n`);
const begun = new Set<string>();

await using corral = await openCorral({
  projectDir: order.projectDir,
  stateDir: order.stateDir,
  engineEnv: { ...process.env, ...order.env },
  emit(event) {
    if (event.type === "trouble") say({ trouble: event.detail });
    if (event.type !== "output" || begun.has(event.run)) return;
    begun.add(event.run);
    say({ began: event.run });
  },
});
const worker = corral.project.workers.get(order.worker);
if (worker === undefined) throw new Error(`there is no worker ${order.worker}`);
const { signal } = new AbortController();
await Promise.all(
  Array.from({ length: order.runs }, async (_, index) => {
    say({ ended: await run({ worker, input: index, signal }, corral.environment) });
  }),
);
