import { join } from "node:path";
import { BlobRefused, type BlobStore, isDigest } from "../../blobs/blob.ts";
import { TooManyChanges } from "../../changes/scan/scan.ts";
import { WireRefused } from "../../changes/wire/document.ts";
import { importChangeset } from "../../changes/wire/import.ts";
import { changesOf, type SettledChanges, settleCollected } from "../../run/changes/settled-run.ts";
import type { Job } from "../../run/model/job.ts";
import { permissionOf } from "../../run/model/permission.ts";
import { type ChangesetKeeper, unstartedResult } from "../../run/model/result.ts";
import { present } from "../../text/present.ts";
import { itemJob } from "../items/item-job.ts";
import type { ItemResult } from "../model/item.ts";
import type { SettleChanges } from "./fleet-parts.ts";
import { isPending } from "./item-result.ts";
import type { OwnedQueue } from "./owned-queue.ts";

/**
 * Settles what attempts on machines changed as if they had run here: the item's sandbox is derived here, and the machine's word counts for
 * nothing but the content. `blobs`: where machines put that.
 */
export function settlingDelivered(blobs: BlobStore): SettleChanges {
  return async ({ delivered, request, result, streams }, { fleet, job: fleetJob, queue, signal, onBegun }) => {
    const { changeset, run, index, attempt } = delivered;
    if (changeset === null) return { result, hasBegun: false };
    const { env } = fleetJob;
    const refused = (message: string) => ({ result: unsettled(result, message), hasBegun: false });
    if (!isDigest(changeset)) return refused("its list of changes has no digest");

    const state: { would: SettledChanges | null; begun: boolean; fenced: boolean } = {
      would: null,
      begun: false,
      fenced: false,
    };
    const begin: Job["begin"] = async () => {
      const foreseen = state.would === null ? result : withChanges(result, state.would);
      const intent = { result: foreseen, cacheKey: null, streams };
      const taken = await queue.begin(index, attempt, intent);
      if (taken.ok) onBegun(intent);
      state.begun = taken.ok;
      state.fenced = !taken.ok;
      if (taken.ok) return null;
      return { reason: taken.reason, isInherited: taken.code === "taken" && taken.isInherited };
    };
    const job = itemJob(fleetJob, request, { run, fleet, signal, turn: async () => {}, begin });
    const derivation = await permissionOf(job.worker, job.callerSandbox, job.narrow, env);
    if (!derivation.ok) return refused("its sandbox is no longer allowed");
    const { sandbox } = derivation;
    try {
      const confirm = (): Promise<void> => queue.confirm();
      await confirm();
      // Its coordinator may have died after it kept these changes, and before it began: they are decided on anew.
      await env.changesets.drop(run, "its coordinator ended before it had decided on them", confirm);
      await using collected = await importChangeset({
        digest: changeset,
        store: blobs,
        home: { sandbox, ...present({ makesBelow: job.makesBelow }) },
        dir: join(env.ownerDir, `${run}.delivered`),
        maxBytes: sandbox.limits.diskBytes ?? sandbox.policy.maxLimits.diskBytes,
        of: changesOf(job, env),
        search: env.masking.search(job.root),
        signal,
      });
      if (collected === null) return { result, hasBegun: false };
      const unfit = result.status === "succeeded" ? null : `the run did not succeed (${result.status})`;
      const settled = await settleCollected(collected, job, whileOwned(env.changesets, queue), env, {
        unfit,
        foreseen: (would) => {
          state.would = would;
          return unstartedResult({ run, worker: job.worker.name }, "succeeded", { code: "", message: "" });
        },
      });
      return state.fenced ? null : { result: withChanges(result, settled), hasBegun: state.begun };
    } catch (error) {
      const isItsWord = error instanceof BlobRefused || error instanceof WireRefused || error instanceof TooManyChanges;
      if (!isItsWord || state.begun) throw error;
      return refused(error.message);
    }
  };
}

/** A process that waits for a person's decision can lose the fleet meanwhile: then the next owner decides on the same changes. */
function whileOwned(into: ChangesetKeeper, queue: Pick<OwnedQueue, "confirm">): ChangesetKeeper {
  // While the changes are held, since a process can be stopped between any two steps: then the next owner waits for it.
  const confirm = (): Promise<void> => queue.confirm();
  return {
    keep: (changeset, state, reason) => into.keep(changeset, state, reason, confirm),
    async apply(changeset, indexes, beginning) {
      await confirm();
      return await into.apply(changeset, indexes, beginning && { ...beginning, confirm });
    },
  };
}

/** The result of a run whose changes are settled: it is a success only if they are all applied. */
function withChanges(result: ItemResult, { changeset, failure }: SettledChanges): ItemResult {
  if (changeset === null && failure === null) return result;
  const changed = changeset === null ? {} : { changeset };
  if (failure === null || result.status !== "succeeded") return { ...result, ...changed };
  const { status, error } = failure;
  return { ...result, ...changed, error, status: isPending({ status, error, changeset }) ? "pending" : status };
}

function unsettled(result: ItemResult, reason: string): ItemResult {
  const message = `What a machine delivered of its changes is refused: ${reason}.`;
  return { ...result, status: "refused", error: { code: "DELIVERY_REFUSED", message } };
}
