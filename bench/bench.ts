import { chmod, mkdir, mkdtemp, rm } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import type Docker from "dockerode";
import type { WorkerDefinition } from "../src/declarations/worker/worker.ts";
import type { FleetJournal } from "../src/fleet/journal/journal.ts";
import { openJournal } from "../src/fleet/open-journal.ts";
import type { RunEvent } from "../src/index.ts";
import { connect } from "../src/isolation/engine/connect.ts";
import type { Plan } from "../src/isolation/plan/plan.ts";
import { type Corral, openCorral } from "../src/run/open/corral.ts";
import { run } from "../src/run/run.ts";
import { openPeers } from "./contenders/open-peers.ts";
import type { Peer } from "./contenders/peer.ts";
import { writeProject } from "./project.ts";
import type { Sizes } from "./sizes.ts";

/** What all suites measure with: a temporary project, open on the Engine. Disposing removes it. */
export interface Bench extends AsyncDisposable {
  readonly projectDir: string;
  readonly stateDir: string;
  readonly corral: Corral;
  /** The Engine's own client, for the contenders that use its API. */
  readonly docker: Docker;
  readonly journal: FleetJournal;
  readonly sizes: Sizes;
  /** The number of files in the project's inbox. */
  readonly items: number;
  readonly peers: readonly Peer[];
  /** The peers that cannot be measured, and why. */
  readonly absentPeers: readonly { readonly name: string; readonly absent: string }[];
  /** The plan of a finished run. The other contenders use it too, so that all do the same work. */
  readonly plan: Plan;
  /** False if there is no docker command to compare with. */
  readonly hasDocker: boolean;
  worker(name: string): WorkerDefinition;
  /** Calls the listener with every event of every run from now on, until disposed. */
  watch(listener: (event: RunEvent) => void): Disposable;
}

export async function openBench(parts: Pick<Bench, "sizes" | "hasDocker">): Promise<Bench> {
  await using opening = new AsyncDisposableStack();
  const base = await mkdtemp(join(tmpdir(), "corral-bench-"));
  opening.defer(() => rm(base, { recursive: true, force: true }));
  await chmod(base, 0o755);
  const projectDir = join(base, "p");
  const stateDir = join(base, "s");
  const { sizes } = parts;
  await mkdir(projectDir);
  const items = Math.max(sizes.freshItems, sizes.trialItems, sizes.scrubbedItems, ...sizes.growth);
  await writeProject(projectDir, items);
  const listeners = new Set<(event: RunEvent) => void>();
  const corral = opening.use(
    await openCorral({
      projectDir,
      stateDir,
      engineEnv: process.env,
      emit(event) {
        for (const listener of listeners) listener(event);
      },
    }),
  );
  const { docker } = await connect(process.env);
  const journal = opening.use(await openJournal(stateDir, corral.project.dir));
  const worker = (name: string): WorkerDefinition => {
    const found = corral.project.workers.get(name);
    if (found === undefined) throw new Error(`the bench's project has no worker ${name}`);
    return found;
  };
  const watch: Bench["watch"] = (listener) => {
    listeners.add(listener);
    return { [Symbol.dispose]: () => void listeners.delete(listener) };
  };
  const plan = await planOfFirstRun(corral, worker("echo"), watch);
  const opened = await openPeers(plan, projectDir);
  const peers = opened.flatMap((peer) => ("absent" in peer ? [] : [opening.use(peer)]));
  const absentPeers = opened.flatMap((peer) => ("absent" in peer ? [peer] : []));
  const moved = opening.move();
  return {
    ...parts,
    items,
    projectDir,
    stateDir,
    corral,
    docker,
    journal,
    plan,
    peers,
    absentPeers,
    worker,
    watch,
    [Symbol.asyncDispose]: () => moved.disposeAsync(),
  };
}

async function planOfFirstRun(corral: Corral, worker: WorkerDefinition, watch: Bench["watch"]): Promise<Plan> {
  const plans: Plan[] = [];
  using _ = watch((event) => void (event.type === "started" && plans.push(event.plan)));
  const { status, error } = await run({ worker, signal: new AbortController().signal }, corral.environment);
  const [plan] = plans;
  if (status !== "succeeded" || plan === undefined) throw new Error(error?.message ?? status);
  return plan;
}
