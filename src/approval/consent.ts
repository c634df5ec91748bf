import type { Approval, Mount } from "../sandbox/mount.ts";
import type { Sandbox } from "../sandbox/sandbox.ts";

/** Writable mounts whose changes a person must agree to before the worker may make them. `blocked` is never asked. */
export function mountsToAsk(sandbox: Sandbox): readonly Mount[] {
  return sandbox.mounts.filter((mount) => mount.mode === "rw" && mount.approval !== undefined && asks(mount.approval));
}

function asks({ write, delete: remove }: Approval): boolean {
  return write !== "blocked" && remove !== "blocked" && (write === "ask" || remove === "ask");
}

/** A new sandbox, in which what was asked for is agreed to. */
export function withConsent(sandbox: Sandbox, mounts: readonly Mount[]): Sandbox {
  const agreed: Approval = { write: "preApproved", delete: "preApproved" };
  const consented = sandbox.mounts.map((mount) => (mounts.includes(mount) ? { ...mount, approval: agreed } : mount));
  return { ...sandbox, mounts: consented };
}
