import type { WorkerDefinition } from "../declarations/worker/worker.ts";
import { sha256 } from "../platform/sha256.ts";
import type { RunEnvironment } from "../run/model/environment.ts";
import type { Mount } from "../sandbox/mount.ts";
import type { Sandbox } from "../sandbox/sandbox.ts";
import { describeViolation } from "../sandbox/wording.ts";
import { calledBy, scriptOf, whatMatters } from "./cache/fleet-digest.ts";
import { imageAsk } from "./model/image-ask.ts";
import type { Agreement } from "./model/work.ts";

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
  return Object.fromEntries(all.map(([name, fact]) => [name, sha256(textOf(fact, projectDir))]));
}

/** SHA-256 of all that a machine agreed to, which it names with each delivery: what its attempts read. */
export function agreementDigest({ declarations, images, trees }: Agreement): string {
  return sha256(textOf([declarations, images, trees], "/"));
}

/** The same text for the same value, whatever the order of its keys. Paths in the project do not say where it is. */
function textOf(value: unknown, projectDir: string): string {
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
