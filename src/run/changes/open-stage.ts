import { join } from "node:path";
import { Stage, type Staging } from "../../changes/stage.ts";
import { refusalOf } from "../../isolation/sources/refused-sources.ts";
import { deliveryOf } from "../../sandbox/expand.ts";
import type { Sandbox } from "../../sandbox/sandbox.ts";
import type { Violation } from "../../sandbox/violation.ts";
import type { CellHost } from "../model/environment.ts";
import type { Job } from "../model/job.ts";

/** What no cell may be shown is not for the tools on the host's side either, and they need no cell. */
export function refusedMounts({ mounts }: Pick<Sandbox, "mounts">, env: CellHost): Violation[] {
  return mounts.flatMap(({ path, host, view }): Violation[] => {
    // A view is Corral's own; what it shows was judged when it was made.
    const reason = view === undefined ? refusalOf(host, env.refusedSources) : null;
    return reason === null ? [] : [{ code: "MOUNT_SOURCE_REFUSED", path, reason }];
  });
}

/** Opens the views in which a run writes what a bind mount cannot enforce. */
export async function openStage(job: Job, sandbox: Sandbox, env: CellHost): Promise<Staging> {
  // A view would show what no cell may be shown, and hide where it comes from.
  const viewed = sandbox.mounts.filter((mount) => deliveryOf(mount) === "view");
  const violations = refusedMounts({ mounts: viewed }, env);
  if (violations.length > 0) return { ok: false, violations };
  return await Stage.open({
    sandbox,
    dir: join(env.ownerDir, `${job.run}.stage`),
    maxBytes: sandbox.limits.diskBytes ?? sandbox.policy.maxLimits.diskBytes,
    overlays: env.overlays,
    isRefused: (host) => refusalOf(host, env.refusedSources) !== null,
    signal: job.signal,
    ...(job.makesBelow === undefined ? {} : { makesBelow: job.makesBelow }),
  });
}
