import type { Plan } from "../../isolation/plan/plan.ts";
import type { ImageFacts } from "../../isolation/plan/plan-for.ts";
import type { Sandbox } from "../../sandbox/sandbox.ts";
import { deliveryOf } from "../../sandbox/staging.ts";
import type { Violation } from "../../sandbox/violation.ts";
import { type Plumbing, prepare } from "../cell/prepare.ts";
import type { CellHost } from "../model/environment.ts";
import type { Job } from "../model/job.ts";
import type { Preview } from "../open/preview.ts";

export interface ExplainedPlan {
  readonly plan: Plan | null;
  readonly violations: readonly Violation[];
  readonly notes: readonly string[];
}

/** The plan of a run, made by the same step as the run's own. */
export async function explainPlan(job: Job, sandbox: Sandbox, preview: Preview): Promise<ExplainedPlan> {
  const { environment } = preview;
  const { image } = job.worker;
  if (preview.unavailable !== null) {
    return { plan: null, violations: await violationsWithoutImage(job, sandbox, environment), notes: [] };
  }
  if ((await environment.driver.imageFacts(image)) === null) {
    const others = await violationsWithoutImage(job, sandbox, environment);
    return { plan: null, violations: [{ code: "IMAGE_MISSING", image }, ...others], notes: [] };
  }
  await using preparation = await prepare(job, sandbox, SOCKET, environment);
  if (!preparation.ok) return { plan: null, violations: preparation.violations, notes: [] };
  return { plan: preparation.plan, violations: [], notes: mountNotes(preparation.plan, sandbox) };
}

/** In place of a run's socket, which is made with the run. Nothing else in the plan depends on it. */
const SOCKET: Plumbing = {
  socket: { path: "SOCKET", source: { device: "0", inode: "0", uid: 0, gid: 0, kind: "socket" } },
  views: "would-be",
};

/** What would be refused whatever the image is: an image without any facts, and some file in the place of the gate. */
async function violationsWithoutImage(
  job: Job,
  sandbox: Sandbox,
  environment: CellHost,
): Promise<readonly Violation[]> {
  const imageFacts = async (name: string): Promise<ImageFacts> => ({ name, id: "", env: [], volumes: [] });
  const imageless = { ...environment, driver: { ...environment.driver, imageFacts }, gate: process.execPath };
  await using preparation = await prepare(job, sandbox, SOCKET, imageless);
  return preparation.ok ? [] : preparation.violations;
}

function mountNotes({ mounts }: Plan, sandbox: Sandbox): string[] {
  const heldBack = mounts.filter((mount) => mount.heldBack !== undefined);
  const kept = sandbox.mounts.filter((mount) => deliveryOf(mount) === "view" && mount.discard && mount.mode === "rw");
  return [
    ...heldBack.map(
      ({ path }) => `${path} is read-only in the container, since writing and deleting are blocked there.`,
    ),
    ...kept.map(({ path }) => `What is written in ${path} is discarded when the run has ended.`),
  ];
}
