import { lendings } from "../../changes/view/lending.ts";
import { isMissing, ownerOfNewZone, stillMissing } from "../../declarations/place/zone-folder.ts";
import { type PlannedSource, sandboxAnchors } from "../../isolation/plan/mounts.ts";
import { networkFiles } from "../../isolation/plan/network.ts";
import type { Plan } from "../../isolation/plan/plan.ts";
import type { ImageFacts } from "../../isolation/plan/plan-for.ts";
import { refusalOf } from "../../isolation/sources/refused-sources.ts";
import { deliveryOf } from "../../sandbox/expand.ts";
import type { Sandbox } from "../../sandbox/sandbox.ts";
import type { Violation } from "../../sandbox/violation.ts";
import { type Plumbing, prepare } from "../cell/prepare.ts";
import type { Job } from "../model/job.ts";
import { madeAtFirstUse, NO_ASK, unmadeViolation, type WorkerImages } from "../model/worker-images.ts";
import { NO_GATE, type Preview } from "../open/preview.ts";

export interface ExplainedPlan {
  readonly plan: Plan | null;
  readonly violations: readonly Violation[];
  readonly notes: readonly string[];
}

/** The plan of a run, made by the same step as the run's own. */
export async function explainPlan(job: Job, sandbox: Sandbox, preview: Preview): Promise<ExplainedPlan> {
  const { environment } = preview;
  if (preview.unavailable !== null) {
    return { plan: null, violations: await violationsWithoutImage(job, sandbox, preview), notes: [] };
  }
  const { violations, notes } = await imageFindings(job, environment);
  if (violations.length + notes.length > 0) {
    const others = await violationsWithoutImage(job, sandbox, preview);
    return { plan: null, violations: [...violations, ...others], notes };
  }
  const plumbing = await plumbingOf(preview, sandbox);
  await using preparation = await prepare(job, sandbox, plumbing, environment, NO_ASK);
  if (!preparation.ok) return { plan: null, violations: preparation.violations, notes: [] };
  const { plan, notes: partly } = preparation;
  return { plan, violations: [], notes: [...partly, ...mountNotes(plan, sandbox, plumbing), ...networkNotes(plan)] };
}

/** What the first run makes is no reason to refuse it. */
async function imageFindings(
  { worker }: Job,
  { images, driver }: Preview["environment"],
): Promise<Pick<ExplainedPlan, "violations" | "notes">> {
  const ready = await images.ready(worker, NO_ASK);
  if (ready.state === "refused") return { violations: ready.violations, notes: [] };
  if (ready.state === "ready") {
    const found = (await driver.imageFacts(ready.name)) !== null;
    return { violations: found ? [] : [{ code: "IMAGE_MISSING", image: worker.image }], notes: [] };
  }
  const named = ready.parts.filter(({ kind }) => kind === "named");
  const made = ready.parts.filter(({ kind }) => kind !== "named");
  return { violations: named.map(unmadeViolation), notes: made.map(madeAtFirstUse) };
}

function networkNotes({ network }: Plan): string[] {
  if (typeof network === "string" || process.getuid?.() === 0) return [];
  return [
    "Corral does not run as root: for its allow list each start makes a second container, of the image corral/node.",
  ];
}

/** A run's socket is made with the run, and so is what else is missing. Nothing else in the plan depends on it. */
async function plumbingOf({ project, environment }: Preview, sandbox: Sandbox) {
  const { network, mounts } = sandbox;
  const nowhere = { device: "0", inode: "0" };
  const owner = await ownerOfNewZone(project.dir);
  const missing = await stillMissing(project.newZones);
  const isRefused = (host: string) => missing.includes(host) || refusalOf(host, environment.refusedSources) !== null;
  const lent = lendings(sandbox, isRefused);
  const between = sandboxAnchors(sandbox).filter(({ host }) =>
    missing.some((zone) => zone.startsWith(`${host}/`) || host.startsWith(`${zone}/`)),
  );
  for (const { host } of between) if (await isMissing(host)) missing.push(host);
  const zones = missing.map((host) => [host, { ...nowhere, ...owner, kind: "directory" }] as const);
  return {
    socket: { path: "SOCKET", source: { ...nowhere, uid: 0, gid: 0, kind: "socket" } },
    files: Object.keys(networkFiles(network)).map((path) => ({
      path,
      host: "FILE",
      source: { ...nowhere, uid: 0, gid: 0, kind: "file" as const },
    })),
    views: "would-be",
    lent: new Map([...lent].map(([path, to]) => [mounts.find((mount) => mount.path === path)?.host ?? "", to])),
    wouldBe: new Map<string, PlannedSource>([...zones, [NO_GATE, { ...nowhere, uid: 0, gid: 0, kind: "file" }]]),
  } satisfies Plumbing;
}

/** What would be refused whatever the image is: an image without any facts, and no gate yet. */
async function violationsWithoutImage(job: Job, sandbox: Sandbox, preview: Preview): Promise<readonly Violation[]> {
  const { environment } = preview;
  const imageFacts = async (name: string): Promise<ImageFacts> => ({ name, id: "", env: [], volumes: [] });
  const driver = { ...environment.driver, imageFacts };
  const ready: WorkerImages["ready"] = async ({ image: name }) => ({ state: "ready", name, environments: [] });
  const imageless = { ...environment, driver, images: { ready }, gate: NO_GATE };
  await using preparation = await prepare(job, sandbox, await plumbingOf(preview, sandbox), imageless, NO_ASK);
  return preparation.ok ? [] : preparation.violations;
}

function mountNotes(
  { mounts }: Plan,
  sandbox: Sandbox,
  { wouldBe, lent }: Required<Pick<Plumbing, "wouldBe" | "lent">>,
): string[] {
  const missing = sandbox.mounts.filter(({ host }) => wouldBe.has(host));
  const borrowed = sandbox.mounts.filter(({ host }) => lent.has(host));
  const heldBack = mounts.filter((mount) => mount.heldBack !== undefined);
  const kept = sandbox.mounts.filter((mount) => deliveryOf(mount) === "view" && mount.discard && mount.mode === "rw");
  return [
    ...missing.map(({ path }) => `The folder of ${path} does not exist yet: the first run makes it.`),
    ...borrowed.map(
      ({ path }) =>
        `The worker gets a copy of ${path}: it belongs to another user than the worker's, which could not use it.`,
    ),
    ...heldBack.map(
      ({ path }) => `${path} is read-only in the container, since writing and deleting are blocked there.`,
    ),
    ...kept.map(({ path }) => `What is written in ${path} is discarded when the run has ended.`),
  ];
}
