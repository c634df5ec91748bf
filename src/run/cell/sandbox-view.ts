import { posix } from "node:path";
import { ATTACHMENTS_PATH, type Plan } from "../../isolation/plan/plan.ts";
import type { Mount } from "../../sandbox/mount.ts";
import type { Sandbox } from "../../sandbox/sandbox.ts";
import { inCell } from "../model/cell-path.ts";
import type { Job } from "../model/job.ts";

/**
 * What a run may do, for the worker itself: paths as its cell has them, and nothing of the host. `shown`: what its tools act
 * on now, with what was granted since the cell of `plan` was started, which that does not show.
 */
export function sandboxView(job: Job, shown: Sandbox, plan: Plan): unknown {
  const granted = shown.mounts.filter((mount) => mount.granted !== undefined);
  const mounts = plan.mounts.filter((mount) => mount.origin === "sandbox");
  return {
    run: job.run,
    worker: job.worker.name,
    readablePaths: mounts.map((mount) => mount.path),
    writablePaths: mounts.filter((mount) => mount.mode === "rw").map((mount) => mount.path),
    granted: granted.map(({ path, mode }) => ({ path: inCell(path, shown), mode: mode === "rw" ? "write" : "read" })),
    constraints: shown.mounts.flatMap((mount) => constraintsOf(mount, shown)),
    attachments: job.attachments.map((attachment) => posix.join(ATTACHMENTS_PATH, attachment.name)),
    workingDir: plan.workingDir,
    network: shown.network,
    limits: plan.limits,
    policy: plan.policy,
    calls: job.worker.calls,
  };
}

/** Which files may be there at all: what else there is, is not shown. */
function constraintsOf({ path, suffixes, maxFileBytes }: Mount, shown: Sandbox): object[] {
  if (suffixes === undefined && maxFileBytes === undefined) return [];
  return [{ path: inCell(path, shown), suffixes: suffixes ?? null, maxFileBytes: maxFileBytes ?? null }];
}
