import type { Decision } from "../approval/approver.ts";
import { mountsToAsk, withConsent } from "../approval/consent.ts";
import type { Sandbox } from "../sandbox/sandbox.ts";
import type { RunEnvironment } from "./environment.ts";
import type { Job } from "./job.ts";

export type Consent =
  | { readonly ok: true; readonly sandbox: Sandbox }
  | { readonly ok: false; readonly decision: Decision; readonly paths: readonly string[] };

/** Asks for what may only be written with a person's agreement, once for the run: inside a cell nobody can be asked. */
export async function consentFor(job: Job, sandbox: Sandbox, env: RunEnvironment): Promise<Consent> {
  const mounts = mountsToAsk(sandbox);
  if (mounts.length === 0) return { ok: true, sandbox };
  const paths = mounts.map((mount) => mount.path);
  const request = {
    run: job.run,
    root: job.root,
    worker: job.worker.name,
    operations: ["write", "delete"] as const,
    paths,
  };
  const decision = await env.approver.decide(request, job.signal);
  if (decision.outcome !== "approved") return { ok: false, decision, paths };
  return { ok: true, sandbox: withConsent(sandbox, mounts) };
}
