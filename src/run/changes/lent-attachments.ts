import { join } from "node:path";
import { Stage, type StageRequest, type StagingResult } from "../../changes/stage.ts";
import { CannotStage, lendFiles } from "../../changes/view/base-tree.ts";
import type { HostUser } from "../../changes/view/lending.ts";
import type { FrozenView } from "../../changes/view/view.ts";
import { EngineTrouble } from "../../isolation/port/driver.ts";
import { refusalOf } from "../../isolation/sources/refused-sources.ts";
import { ASK } from "../../sandbox/approval.ts";
import { deliveryOf } from "../../sandbox/expand.ts";
import type { Sandbox } from "../../sandbox/sandbox.ts";
import type { Violation } from "../../sandbox/violation.ts";
import { present } from "../../text/present.ts";
import type { CellHost } from "../model/environment.ts";
import type { Attachment, Job } from "../model/job.ts";

/** The attachments of a run, as copies where the user of its cell could not read them. */
export type LentAttachments = AsyncDisposable &
  (
    | { readonly ok: true; readonly attachments: readonly Attachment[] }
    | { readonly ok: false; readonly violations: readonly Violation[] }
  );

/** `sandbox`: with its views. */
export async function lentAttachments(
  { run, attachments, signal }: Pick<Job, "run" | "attachments" | "signal">,
  sandbox: Sandbox,
  env: CellHost,
): Promise<LentAttachments> {
  const own = attachments.filter(({ view, identity }) => view === undefined && identity === undefined);
  const request = {
    sandbox,
    dir: join(env.ownerDir, `${run}.attached`),
    isRefused: (host: string) => refusalOf(host, env.refusedSources) !== null,
    signal,
  };
  try {
    const lent = await lendFiles([...new Set(own.map(({ host }) => host))], request);
    const shown = attachments.map((one): Attachment => {
      const copy = own.includes(one) ? lent.copies.get(one.host) : undefined;
      return copy === undefined ? one : { ...one, host: copy, view: { origin: one.host, asked: ASK } };
    });
    return { ok: true, attachments: shown, [Symbol.asyncDispose]: () => lent[Symbol.asyncDispose]() };
  } catch (error) {
    if (!(error instanceof CannotStage)) throw error;
    const reason = `its user cannot read the attachments, and ${error.message}`;
    const violations: Violation[] = [{ code: "MOUNT_SOURCE_REFUSED", path: "/attachments", reason }];
    return { ok: false, violations, [Symbol.asyncDispose]: async () => {} };
  }
}

/** What no cell may be shown is not for the tools on the host's side either, and they need no cell. */
export function refusedMounts({ mounts }: Pick<Sandbox, "mounts">, env: CellHost): Violation[] {
  return mounts.flatMap(({ path, host, view }): Violation[] => {
    // A view is Corral's own; what it shows was judged when it was made.
    const reason = view === undefined ? refusalOf(host, env.refusedSources) : null;
    return reason === null ? [] : [{ code: "MOUNT_SOURCE_REFUSED", path, reason }];
  });
}

/** The same for what views show, which is judged before they are made: an engine may have been opened since. */
export function refusedOrigins({ mounts }: Pick<Sandbox, "mounts">, env: CellHost): Violation[] {
  return mounts.flatMap(({ path, view }): Violation[] => {
    const reason = view === undefined ? null : refusalOf(view.origin, env.refusedSources);
    return reason === null ? [] : [{ code: "MOUNT_SOURCE_REFUSED", path, reason }];
  });
}

/** Opens the views in which a run writes what a bind mount cannot enforce. `from`: what they show at first. */
export async function openStage(
  job: Job,
  sandbox: Sandbox,
  env: CellHost,
  from: readonly FrozenView[] = [],
  onViews?: StageRequest["onViews"],
): Promise<StagingResult> {
  // A view would show what no cell may be shown, and hide where it comes from.
  const viewed = sandbox.mounts.filter((mount) => deliveryOf(mount) === "view");
  const violations = refusedMounts({ mounts: viewed }, env);
  if (violations.length > 0) return { ok: false, violations };
  const dir = join(env.ownerDir, `${job.run}.stage`);
  return await Stage.open({
    sandbox,
    dir,
    maxBytes: sandbox.limits.diskBytes ?? sandbox.policy.maxLimits.diskBytes,
    overlays: env.overlays,
    isRefused: (host) => refusalOf(host, env.refusedSources) !== null,
    from,
    rootTree: (image, user) => rootTree(image, user, job, env, dir),
    signal: job.signal,
    ...present({ makesBelow: job.makesBelow, onViews }),
  });
}

async function rootTree(
  image: string,
  user: HostUser,
  { signal }: Job,
  { roots }: CellHost,
  stageDir: string,
): Promise<{ readonly dir: string } | string> {
  if (roots === undefined) return "images are not unpacked here";
  try {
    const layers = () => roots.layers(image);
    const dir = await roots.trees.use({ image, user, layers, stageDir, signal });
    return dir === null ? "the image is gone" : { dir };
  } catch (error) {
    if (error instanceof CannotStage) return `its image cannot be copied for its user: ${error.message}`;
    if (error instanceof EngineTrouble) return error.message;
    throw error;
  }
}
