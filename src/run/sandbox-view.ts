import { posix } from "node:path";
import { ATTACHMENTS_PATH, type Plan, ROOTED_BASE } from "../isolation/plan.ts";
import type { Sandbox } from "../sandbox/sandbox.ts";
import type { Job } from "./job.ts";

/**
 * What a run may do, for the worker itself: paths as its cell has them, and nothing of the host. `shown`: what its tools act
 * on now, with what was granted since the cell of `plan` was started, which that does not show.
 */
export function sandboxView(job: Job, shown: Sandbox, plan: Plan): unknown {
  const base = shown.rooted ? ROOTED_BASE : "";
  const granted = shown.mounts.filter((mount) => mount.granted !== undefined);
  const mounts = plan.mounts.filter((mount) => mount.origin === "sandbox");
  return {
    run: job.run,
    worker: job.worker.name,
    readable_paths: mounts.map((mount) => mount.path),
    writable_paths: mounts.filter((mount) => mount.mode === "rw").map((mount) => mount.path),
    granted: granted.map(({ path, mode }) => ({ path: base + path, mode: mode === "rw" ? "write" : "read" })),
    attachments: job.attachments.map((attachment) => posix.join(ATTACHMENTS_PATH, attachment.name)),
    working_dir: plan.workingDir,
    network: shown.network,
    limits: plan.limits,
    policy: plan.policy,
    calls: job.worker.calls,
  };
}
