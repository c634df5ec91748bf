import { chmod, mkdir, mkdtemp, rm } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import type Docker from "dockerode";
import { connect } from "../src/isolation/engine/open.ts";
import type { Plan } from "../src/isolation/plan/plan.ts";
import { openPeers, type Peers } from "./contenders/open-peers.ts";
import { type Ours, openOurs } from "./contenders/ours.ts";
import type { AbsentPeer } from "./contenders/peer.ts";
import { DRIVER_NAMES } from "./outcome/names.ts";
import { writeProject } from "./project.ts";
import type { Sizes } from "./sizes.ts";

/** What all suites measure with: a temporary project, open on every driver. Disposing removes it. */
export interface Bench extends AsyncDisposable {
  readonly projectDir: string;
  /** The Engine's own client, for the contenders that use its API. */
  readonly docker: Docker;
  readonly sizes: Sizes;
  /** The number of files in the project's inbox. */
  readonly items: number;
  /** Corral on each driver that can be used here, the default of runs first. */
  readonly ours: readonly [Ours, ...Ours[]];
  readonly peers: Peers;
  /** The contenders that cannot be measured, and why. */
  readonly absent: readonly AbsentPeer[];
  /** The plan of a finished run. The other contenders use it too, so that all do the same work. */
  readonly plan: Plan;
  /** False if there is no docker command to compare with. */
  readonly hasDocker: boolean;
}

export async function openBench(parts: Pick<Bench, "sizes" | "hasDocker">, policy: string): Promise<Bench> {
  await using opening = new AsyncDisposableStack();
  const base = await mkdtemp(join(tmpdir(), "corral-bench-"));
  opening.defer(() => rm(base, { recursive: true, force: true }));
  await chmod(base, 0o755);
  const projectDir = join(base, "p");
  const { sizes } = parts;
  await mkdir(projectDir);
  const items = Math.max(sizes.freshItems, sizes.trialItems, sizes.scrubbedItems, ...sizes.growth);
  await writeProject(projectDir, items, policy);
  const { docker } = await connect(process.env);
  const absent: AbsentPeer[] = [];
  const present: Ours[] = [];
  for (const driver of DRIVER_NAMES) {
    const opened = await openOurs(driver, projectDir, join(base, driver));
    if ("absent" in opened) absent.push(opened);
    else present.push(opening.use(opened));
  }
  const [first, ...others] = present;
  if (first === undefined) throw new Error(absent.map(({ name, absent: why }) => `${name}: ${why}`).join("\n"));
  const { plan } = first;
  const peers = opening.use(await openPeers(docker, plan, projectDir));
  const moved = opening.move();
  return {
    ...parts,
    items,
    projectDir,
    docker,
    plan,
    ours: [first, ...others],
    peers,
    absent: [...absent, ...peers.absent],
    [Symbol.asyncDispose]: () => moved.disposeAsync(),
  };
}
