import { posix } from "node:path";
import { ATTACHMENTS_PATH, type Plan, SECRETS_PATH } from "../../isolation/plan/plan.ts";
import type { Mount } from "../../sandbox/mount.ts";
import { shownNetwork } from "../../sandbox/network/rule.ts";
import { readAfterApproval, type Sandbox } from "../../sandbox/sandbox.ts";
import { inCell } from "../model/cell-path.ts";
import type { Job } from "../model/job.ts";

/**
 * What a run may do, for the worker itself: paths as its cell has them, and nothing of the host. `sandbox`: what its tools act
 * on now, with what was granted since the cell of `plan` was started, which that does not show.
 */
export function sandboxView(job: Job, sandbox: Sandbox, plan: Plan): unknown {
  const granted = sandbox.mounts.filter((mount) => mount.granted !== undefined);
  const mounts = plan.mounts.filter((mount) => mount.origin === "sandbox");
  return {
    run: job.run,
    worker: job.worker.name,
    readablePaths: mounts.map((mount) => mount.path),
    writablePaths: mounts.filter((mount) => mount.mode === "rw").map((mount) => mount.path),
    readAfterApproval: readAfterApproval(sandbox).map((path) => inCell(path, sandbox)),
    granted: granted.map(({ path, mode }) => ({ path: inCell(path, sandbox), mode: mode === "rw" ? "write" : "read" })),
    constraints: sandbox.mounts.flatMap((mount) => constraintsOf(mount, sandbox)),
    attachments: job.attachments.map((attachment) => posix.join(ATTACHMENTS_PATH, attachment.name)),
    workingDir: plan.workingDir,
    network: shownNetwork(sandbox.network),
    secrets: (plan.secrets ?? []).map((name) => posix.join(SECRETS_PATH, name)),
    limits: plan.limits,
    policy: plan.policy,
    calls: job.worker.calls,
  };
}

/** Which files may be there at all: files that may not be read are not shown. */
function constraintsOf({ path, suffixes, maxFileBytes }: Mount, sandbox: Sandbox): object[] {
  if (suffixes === undefined && maxFileBytes === undefined) return [];
  return [{ path: inCell(path, sandbox), suffixes: suffixes ?? null, maxFileBytes: maxFileBytes ?? null }];
}
