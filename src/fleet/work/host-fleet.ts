import type { Mirrors } from "../../blobs/mirror/mirrors.ts";
import type { BlobStore } from "../../blobs/model/blob.ts";
import type { RunEnvironment } from "../../run/model/environment.ts";
import { describeAll } from "../../run/model/result.ts";
import type { Sandbox } from "../../sandbox/sandbox.ts";
import { agreedFacts, whyDifferent } from "../agreement/agreement.ts";
import { withFetchedAttachments } from "../fetched-attachments.ts";
import { fleetPermission } from "../fleet-permission.ts";
import { freshCells } from "../fresh-cells.ts";
import { type FleetJob, readByAll } from "../items/item-job.ts";
import type { Offer } from "../model/work.ts";
import { RunTroubles } from "../run-troubles.ts";
import type { AskingCoordinator } from "./asking-coordinator.ts";
import type { HostFleet, Hosting } from "./hosting.ts";
import { attemptWith } from "./item-attempt.ts";
import { inheriting, mirrored } from "./mirrored-job.ts";
import { deniesDirectories } from "./no-directories.ts";
import { offeredSpec } from "./offered-spec.ts";
import { SentChanges } from "./sent-changes.ts";
import { whatIsMissing } from "./what-is-missing.ts";

/** What a machine runs items with. */
export interface MachineParts {
  /** Of this machine's own copy of the project. */
  readonly run: RunEnvironment;
  /** Of Corral. */
  readonly version: string;
  readonly blobs: BlobStore;
  /** Those that a cell with this sandbox can read all of. */
  readonly mirrorsFor: (sandbox: Sandbox) => Mirrors;
  /** The directory of the mirrors: what cells may be shown of Corral's own. */
  readonly mirrorsDir: string;
  /** Asks for the approvals that runs need. */
  readonly questions: Pick<AskingCoordinator, "of">;
}

/**
 * Takes a fleet only if the declarations and images here are those of its coordinator: neither it nor the database can make this machine
 * run what is not declared here. Each item has a cell of its own, whatever `reuse` says.
 */
export function hostFleets({ run, version, blobs, mirrorsFor, mirrorsDir, questions }: MachineParts): HostFleet {
  return async (offer: Offer, signal: AbortSignal): Promise<Hosting> => {
    const spec = offeredSpec(offer.spec);
    if (spec === null) return refused("another version of Corral wrote its declaration");
    const permission = await fleetPermission({ ...spec, reuse: "fresh" }, run);
    if (!permission.ok) return refused("reason" in permission ? permission.reason : textOf(permission));
    const { worker, sandbox } = permission;
    const why = whyDifferent(await agreedFacts(permission, run, { version, signal }), offer.agreement);
    if (why !== null) return refused(why);
    const missing = await whatIsMissing(permission, run, signal);
    if (missing !== null) return refused(missing);

    const shown = await mirrored(sandbox, offer.agreement.trees, { mirrors: mirrorsFor(sandbox), blobs, signal });
    const sent = new SentChanges(blobs);
    const troubles = new RunTroubles();
    const env = troubles.listeningIn({
      ...run,
      approver: deniesDirectories(run),
      refusedSources: { ...run.refusedSources, mirrors: mirrorsDir },
      handsOver: (job, changeset) => sent.send(job, changeset),
    });
    const cells = withFetchedAttachments(freshCells(shown.sandbox, env), { blobs, ownerDir: env.ownerDir });
    const reads = readByAll(shown.sandbox, spec.reuse);
    const own = { caller: shown.sandbox, sandbox: shown.sandbox, reads, env };
    const job: FleetJob = { ...own, worker: inheriting(worker), isElsewhere: true };
    return {
      ok: true,
      fleet: {
        worker: worker.name,
        attempt: attemptWith({ fleet: offer.fleet, job, cells, troubles, sent, questions }),
        async [Symbol.asyncDispose]() {
          await cells[Symbol.asyncDispose]();
          await shown[Symbol.asyncDispose]();
        },
      },
    };
  };
}

function refused(why: string): Hosting {
  return { ok: false, why };
}

function textOf({ violations }: { readonly violations: Parameters<typeof describeAll>[0] }): string {
  return describeAll(violations)
    .map(({ message }) => message)
    .join("; ");
}
