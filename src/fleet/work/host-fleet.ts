import type { Mirrors } from "../../blobs/mirror/mirrors.ts";
import type { BlobStore } from "../../blobs/model/blob.ts";
import type { RunEnvironment } from "../../run/model/environment.ts";
import { describeAll } from "../../run/model/result.ts";
import type { Sandbox } from "../../sandbox/sandbox.ts";
import { deliveryOf } from "../../sandbox/staging.ts";
import { agreedFacts, agreementDigest, whyDifferent } from "../agreement/agreement.ts";
import { withFetchedAttachments } from "../fetched-attachments.ts";
import { fleetPermission } from "../fleet-permission.ts";
import { freshCells } from "../fresh-cells.ts";
import { type FleetJob, readByAll } from "../items/item-job.ts";
import type { Offer } from "../model/work.ts";
import { RunTroubles } from "../run-troubles.ts";
import { ScrubbedPool } from "../scrubbed/scrubbed-pool.ts";
import type { AskingCoordinator } from "./asking-coordinator.ts";
import type { HostFleet, Hosting } from "./hosting.ts";
import { attemptWith } from "./item-attempt.ts";
import { inheriting, mirrored } from "./mirrored-job.ts";
import { deniesDirectories } from "./no-directories.ts";
import { offeredAgreement, offeredSpec } from "./offered-spec.ts";
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
  /** Items that run at once. */
  readonly slots: number;
  /** The directory of the mirrors: what cells may be shown of Corral's own. */
  readonly mirrorsDir: string;
  /** Asks for the approvals that runs need. */
  readonly questions: Pick<AskingCoordinator, "of">;
}

/**
 * Takes a fleet only if the declarations and images here are those of its coordinator: neither it nor the database can make this machine
 * run what is not declared here.
 */
export function hostFleets({ run, version, blobs, mirrorsFor, mirrorsDir, slots, questions }: MachineParts): HostFleet {
  const pools = new Set<ScrubbedPool>();
  // Some more items than run wait with their cells ready. All fleets together keep about as many cells, and at most one more for each.
  const size = (): number => Math.ceil((2 * slots) / Math.max(1, pools.size));
  return async (offer: Offer, signal: AbortSignal): Promise<Hosting> => {
    const [spec, agreement] = [offeredSpec(offer.spec), offeredAgreement(offer.agreement)];
    if (spec === null || agreement === null) return refused("another version of Corral wrote its declaration");
    const permission = await fleetPermission({ ...spec, reuse: "fresh" }, run);
    if (!permission.ok) return refused("reason" in permission ? permission.reason : textOf(permission));
    const { worker, sandbox } = permission;
    const why = whyDifferent(await agreedFacts(permission, run, { version, signal }), agreement);
    if (why !== null) return refused(why);
    const missing = await whatIsMissing(permission, run, signal);
    if (missing !== null) return refused(missing);
    const mayShare = spec.reuse === "scrubbed" && (await fleetPermission(spec, run)).ok;

    const shown = await mirrored(sandbox, agreement.trees, { mirrors: mirrorsFor(sandbox), blobs, signal });
    const sent = new SentChanges(blobs);
    const troubles = new RunTroubles();
    const env = troubles.listeningIn({
      ...run,
      approver: deniesDirectories(run),
      refusedSources: { ...run.refusedSources, mirrors: mirrorsDir },
      handsOver: (job, changeset) => sent.send(job, changeset),
    });
    const own = { worker: inheriting(worker), sandbox: shown.sandbox };
    const ends = new AbortController();
    const pool =
      mayShare && onlyReads(shown.sandbox)
        ? new ScrubbedPool({ worker: own.worker, fleet: own.sandbox, env, size, signal: ends.signal })
        : null;
    if (pool !== null) {
      pools.add(pool);
      for (const other of pools) other.trim();
    }
    const cells = withFetchedAttachments(pool ?? freshCells(own.sandbox, env), { blobs, ownerDir: env.ownerDir });
    const reads = readByAll(shown.sandbox, spec.reuse);
    const job: FleetJob = { ...own, caller: shown.sandbox, reads, env, isElsewhere: true };
    return {
      ok: true,
      fleet: {
        worker: worker.name,
        attempt: attemptWith({
          ...{ fleet: offer.fleet, job, cells, troubles, sent, questions },
          agreed: agreementDigest(agreement),
        }),
        async [Symbol.asyncDispose]() {
          ends.abort(new Error("the fleet is over"));
          if (pool !== null) pools.delete(pool);
          await cells[Symbol.asyncDispose]();
          await shown[Symbol.asyncDispose]();
        },
      },
    };
  };
}

/**
 * Its items can share cells that are scrubbed. What an item writes has to leave this machine as a list of changes, which is made from a view
 * of its own: such an item has a cell of its own too.
 */
function onlyReads({ mounts }: Sandbox): boolean {
  return mounts.every((mount) => mount.mode === "ro" && deliveryOf(mount) === "direct");
}

function refused(why: string): Hosting {
  return { ok: false, why };
}

function textOf({ violations }: { readonly violations: Parameters<typeof describeAll>[0] }): string {
  return describeAll(violations)
    .map(({ message }) => message)
    .join("; ");
}
