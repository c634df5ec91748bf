import { readFile } from "node:fs/promises";
import { join } from "node:path";
import type { WorkerDefinition } from "../../declarations/worker/worker.ts";
import type { ImageFacts } from "../../isolation/plan/plan-for.ts";
import { sha256 } from "../../platform/sha256.ts";
import type { RunEnvironment } from "../../run/model/environment.ts";
import type { Sandbox } from "../../sandbox/sandbox.ts";
import { imageAsk } from "../model/image-ask.ts";

/** What all items of a fleet have in common, apart from the files that they can read. */
export interface FleetFacts {
  /** Null if the results depend on what Corral cannot know before: then none of them counts for another fleet. */
  readonly digest: string | null;
  /** The images of the worker and of all workers that it may call, as they were when the digest was made. */
  readonly images: ReadonlyMap<string, ImageFacts>;
}

/** Facts of the worker, the workers that it may call, their images and policies, the sandbox, and who agrees to what. */
export async function fleetFacts(
  worker: WorkerDefinition,
  { mounts, network, workingDir, limits, policy }: Sandbox,
  run: RunEnvironment,
  signal: AbortSignal,
): Promise<FleetFacts> {
  const { project } = run;
  const workers = [worker, ...calledBy(worker, project.workers)];
  const images = new Map<string, ImageFacts>();
  const parts: unknown[] = [];
  for (const one of workers) {
    const ready = await run.images.ready(one, imageAsk(one, run, signal));
    const [name, environments] = ready.state === "ready" ? [ready.name, ready.environments] : [one.image, []];
    const image = images.get(name) ?? (await run.driver.imageFacts(name));
    if (image !== null) images.set(name, image);
    const own = one.policyName === null ? null : await run.policyNamed(one.policyName);
    const prepared = environments.map(({ kind, digest }) => [kind, digest]);
    const made = prepared.length === 0 ? [] : [prepared];
    parts.push([whatMatters(one), image?.id ?? null, own, await scriptOf(one, project.dir), ...made]);
  }
  // Hosts, repositories and directories that are granted while it runs can be different each time.
  const isKnown = network === false && workers.every(({ git = [], dynamic }) => git.length === 0 && dynamic === null);
  if (!isKnown) return { digest: null, images };
  const models = [...project.models.values()].map(({ name, api, url, images: sees }) => [name, api, url, sees]);
  const { approval, delegation } = project;
  const common = [approval.mode, approval.rules, delegation, workers.some(({ agent }) => agent) ? models : []];
  return {
    digest: sha256(JSON.stringify([{ mounts, network, workingDir, limits, policy }, common, parts])),
    images,
  };
}

/** Leaves out what is only for people. The text below a command worker's front matter is a note. */
export function whatMatters({
  name,
  file: _,
  description: __,
  imagePlaces: ___,
  instructions,
  ...rest
}: WorkerDefinition): [string, Readonly<Record<string, unknown>>, string | null] {
  return [name, rest, rest.agent === undefined ? null : instructions];
}

/** The file that plays the model of an agent; null if there is none. */
export async function scriptOf({ agent }: WorkerDefinition, projectDir: string): Promise<string | null> {
  if (agent?.model.kind !== "script") return null;
  return await readFile(join(projectDir, agent.model.file)).then(sha256, () => null);
}

/** The workers that a worker may call, directly or through others, sorted by name. */
export function calledBy(worker: WorkerDefinition, workers: ReadonlyMap<string, WorkerDefinition>): WorkerDefinition[] {
  const found = new Map<string, WorkerDefinition>();
  const follow = ({ calls }: WorkerDefinition): void => {
    for (const name of calls) {
      const called = workers.get(name);
      if (called === undefined || found.has(name)) continue;
      found.set(name, called);
      follow(called);
    }
  };
  follow(worker);
  return [...found.values()].toSorted((a, b) => (a.name < b.name ? -1 : 1));
}
