import { posix } from "node:path";
import { ATTACHMENTS_PATH, type Plan } from "../isolation/plan.ts";
import type { Sandbox } from "../sandbox/sandbox.ts";
import type { Job } from "./job.ts";

/** What a run may do, for the worker itself: paths as its cell has them, and nothing of the host. */
export function sandboxView(job: Job, sandbox: Sandbox, plan: Plan): unknown {
  const mounts = plan.mounts.filter((mount) => mount.origin === "sandbox");
  return {
    run: job.run,
    worker: job.worker.name,
    readable_paths: mounts.map((mount) => mount.path),
    writable_paths: mounts.filter((mount) => mount.mode === "rw").map((mount) => mount.path),
    attachments: job.attachments.map((attachment) => posix.join(ATTACHMENTS_PATH, attachment.name)),
    working_dir: plan.workingDir,
    network: sandbox.network,
    limits: plan.limits,
    policy: plan.policy,
    calls: job.worker.calls,
  };
}
