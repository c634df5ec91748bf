import { lstat } from "node:fs/promises";
import { type PlannedSource, sandboxAnchors } from "../../src/isolation/plan/mounts.ts";
import type { Plan } from "../../src/isolation/plan/plan.ts";
import { type ImageFacts, planFor } from "../../src/isolation/plan/plan-for.ts";
import { type Pins, pinSources } from "../../src/isolation/sources/pin.ts";
import { refusedSourcesFor } from "../../src/isolation/sources/refused-sources.ts";
import { newRunId } from "../../src/run/model/job.ts";
import { projectSandbox } from "../../src/sandbox/declare.ts";
import type { Mount } from "../../src/sandbox/mount.ts";
import type { Policy } from "../../src/sandbox/policy.ts";

export interface Planned {
  readonly plan: Plan;
  readonly pins: Pins;
}

/** A plan with its sources held open, as a run makes one; the project's own sandbox is the worker's. */
export async function pinnedPlan(asked: {
  command: readonly string[];
  image: ImageFacts;
  policy: Policy;
  plumbing: { gate: string; socket: string };
  run?: string;
  mounts?: readonly Mount[];
  attachments?: readonly { name: string; host: string }[];
  env?: Readonly<Record<string, string>>;
}): Promise<Planned> {
  const { command, image, policy, plumbing, run = newRunId(), mounts = [], attachments = [], env = {} } = asked;
  const root = projectSandbox({ mounts, rooted: mounts.some(({ path }) => path === "/") }, policy);
  const hosts = [...mounts, ...attachments, ...sandboxAnchors({ mounts })].map(({ host }) => host);
  const pinning = await pinSources(hosts, refusedSourcesFor("/nowhere", null));
  if (!pinning.ok) throw new Error(JSON.stringify(pinning.refusals));
  const planning = planFor({
    run: { id: run, root: run, parent: null },
    worker: { name: "worker", command, env },
    sandbox: { ...root, limits: policy.defaultLimits },
    image,
    sources: new Map<string, PlannedSource>([
      ...pinning.pins.sources,
      [plumbing.gate, await factsOf(plumbing.gate, "file")],
      [plumbing.socket, await factsOf(plumbing.socket, "socket")],
    ]),
    attachments,
    views: new Set(),
    plumbing,
    orchestratorUid: 0,
  });
  if (!planning.ok) throw new Error(JSON.stringify(planning.violations));
  return { plan: planning.plan, pins: pinning.pins };
}

async function factsOf(path: string, kind: "file" | "socket"): Promise<PlannedSource> {
  const { dev, ino, uid, gid } = await lstat(path, { bigint: true });
  return { device: String(dev), inode: String(ino), uid: Number(uid), gid: Number(gid), kind };
}
