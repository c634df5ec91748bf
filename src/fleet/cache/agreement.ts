import { readFile } from "node:fs/promises";
import { join } from "node:path";
import type { WorkerDefinition } from "../../declarations/worker/worker.ts";
import type { ImageFacts } from "../../isolation/plan/plan-for.ts";
import { sha256 } from "../../platform/sha256.ts";
import type { RunEnvironment } from "../../run/model/environment.ts";
import type { MakeAsk } from "../../run/model/worker-images.ts";
import type { Mount } from "../../sandbox/mount.ts";
import type { Sandbox } from "../../sandbox/sandbox.ts";
import { describeViolation } from "../../sandbox/wording.ts";
import type { Agreement } from "../model/work.ts";

/** What is compared before a machine runs items of another one's fleet. An image that is missing is left out. */
export type AgreedFacts = Pick<Agreement, "declarations" | "images">;

/** What one side finds. */
export interface OwnFacts {
  readonly facts: AgreedFacts;
  /** Why images or environments of the workers could not be made here, in words. */
  readonly unmade: readonly string[];
}

/** More than any project that a person wrote has; the rest is one fact. */
const MAX_FACTS = 5000;

/**
 * Everything that the declarations say of a fleet's worker and of those that it may call. It names no place of a machine, so that two
 * copies of a project in different directories agree. `version`: of Corral, since another one may read the same declaration in another way.
 */
export async function agreedFacts(
  { worker, sandbox }: { readonly worker: WorkerDefinition; readonly sandbox: Sandbox },
  run: RunEnvironment,
  { version, signal }: { readonly version: string; readonly signal: AbortSignal },
): Promise<OwnFacts> {
  const { project } = run;
  const workers = [worker, ...calledBy(worker, project.workers)];
  const facts = new Map<string, unknown>([["Corral's version", version]]);
  const images: Record<string, string> = {};
  const unmade = new Set<string>();
  for (const one of workers) {
    const [name, declared, instructions] = whatMatters(one);
    for (const [key, value] of Object.entries(declared))
      if (value !== undefined) facts.set(`worker ${name}: ${key}`, value);
    if (instructions !== null) facts.set(`worker ${name}: instructions`, instructions);
    const script = await scriptOf(one, project.dir);
    if (script !== null) facts.set(`worker ${name}: script`, script);
    if (one.policyName !== null) facts.set(`policy ${one.policyName}`, await run.policyNamed(one.policyName));
    const ready = await run.images.ready(one, imageAsk(one, run, signal));
    for (const violation of ready.state === "refused" ? ready.violations : []) unmade.add(describeViolation(violation));
    const image = ready.state === "ready" ? ready.name : one.image;
    const id = (await run.driver.imageFacts(image))?.id;
    if (id !== undefined) images[image] = id;
    for (const { kind, digest } of ready.state === "ready" ? ready.environments : [])
      facts.set(`worker ${name}: environment ${kind}`, digest);
  }
  const { mounts, withheld = [], network, workingDir, limits, policy, secrets = [] } = sandbox;
  for (const mount of [...mounts, ...withheld]) facts.set(`mount ${mount.path}`, mountFact(mount));
  facts.set(`policy ${policy.name}`, policy);
  facts.set("sandbox", [network, workingDir, limits, secrets]);
  const { approval, delegation } = project;
  facts.set("approval", [approval.mode, approval.rules]);
  facts.set("delegation", delegation);
  if (workers.some(({ agent }) => agent !== undefined)) {
    for (const { name, api, url, images: sees } of project.models.values())
      facts.set(`model ${name}`, [api, url, sees]);
  }
  return { facts: { declarations: digests(facts, project.dir), images }, unmade: [...unmade] };
}

/** Its content is compared apart, and a view of this process has a place of its own. */
function mountFact({ host, view, ...rest }: Mount): unknown {
  return [view?.origin ?? host, rest];
}

function digests(facts: ReadonlyMap<string, unknown>, projectDir: string): Record<string, string> {
  const named = [...facts].toSorted(([a], [b]) => (a < b ? -1 : 1));
  const [first, rest] = [named.slice(0, MAX_FACTS), named.slice(MAX_FACTS)];
  const all = rest.length === 0 ? first : [...first, ["other declarations", rest] as const];
  return Object.fromEntries(all.map(([name, fact]) => [name, sha256(canonicalText(fact, projectDir))]));
}

/** SHA-256 of all that a machine agreed to, which it names with each delivery: what its attempts read. */
export function agreementDigest({ declarations, images, trees }: Agreement): string {
  return sha256(canonicalText([declarations, images, trees], "/"));
}

/** The same text for the same value, whatever the order of its keys. Paths in the project do not say where it is. */
function canonicalText(value: unknown, projectDir: string): string {
  return (
    JSON.stringify(value, (_, each: unknown) => {
      if (typeof each === "string") return withoutProject(each, projectDir);
      if (each === null || typeof each !== "object" || Array.isArray(each)) return each;
      return Object.fromEntries(Object.entries(each).toSorted(([a], [b]) => (a < b ? -1 : 1)));
    }) ?? "undefined"
  );
}

function withoutProject(text: string, projectDir: string): string {
  return text === projectDir || text.startsWith(`${projectDir}/`) ? `<project>${text.slice(projectDir.length)}` : text;
}

/** Differences that are named one by one. */
const MAX_NAMED = 8;
/** Images that could not be made and are named with the cause. */
const MAX_CAUSES = 3;

/** Why a machine takes no item of a fleet, in words for its owner; null if both agree. `own`: of the machine itself. */
export function whyDifferent({ facts: own, unmade }: OwnFacts, theirs: AgreedFacts): string | null {
  const declared = differingKeys(own.declarations, theirs.declarations);
  const images = differingKeys(own.images, theirs.images);
  const missing = images.filter((name) => !Object.hasOwn(own.images, name));
  const others = images.filter((name) => Object.hasOwn(own.images, name));
  const said = [
    ...grouped(declared, own.declarations, theirs.declarations),
    ...missing.map((name) => `the image ${name} is missing here`),
    ...others.map((name) => `the image ${name} is another one here`),
  ];
  if (said.length === 0) return null;
  const shown = said.slice(0, MAX_NAMED);
  const more = said.length > shown.length ? `; and ${said.length - shown.length} more` : "";
  const way = declared.length > 0 ? "use the same version of the project here" : "make or load the same image here";
  const causes = unmade.length === 0 ? "" : `. ${unmade.slice(0, MAX_CAUSES).join(" ")}`;
  return `${shown.join("; ")}${more}: ${way}${causes}`;
}

function differingKeys(own: Readonly<Record<string, string>>, theirs: Readonly<Record<string, string>>): string[] {
  const names = new Set([...Object.keys(own), ...Object.keys(theirs)]);
  return [...names].filter((name) => own[name] !== theirs[name]).toSorted();
}

/** `worker extract differs in command and limits`, and what only one of both has. */
function grouped(
  names: readonly string[],
  own: Readonly<Record<string, string>>,
  theirs: Readonly<Record<string, string>>,
): string[] {
  const byThing = new Map<string, string[]>();
  const whole: string[] = [];
  for (const name of names) {
    const [thing = name, key] = name.split(": ");
    if (key !== undefined) byThing.set(thing, [...(byThing.get(thing) ?? []), key]);
    else if (!Object.hasOwn(own, name)) whole.push(`${name} is missing here`);
    else if (!Object.hasOwn(theirs, name)) whole.push(`${name} is only here`);
    else whole.push(`${name} differs`);
  }
  return [...[...byThing].map(([thing, keys]) => `${thing} differs in ${keys.join(", ")}`), ...whole];
}

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

/** The image of a worker is made for the fleet, and not for one of its items. */
export function imageAsk({ name: worker }: WorkerDefinition, run: RunEnvironment, signal: AbortSignal): MakeAsk {
  const of = { run: "", root: "", parent: null, worker, attachments: [] };
  return { owner: null, signal, onProgress: (progress) => run.emit({ type: "image", ...of, progress }) };
}
