import { join } from "node:path";
import { BlobRefused, type BlobStore, isDigest } from "../../blobs/blob.ts";
import { TooManyChanges } from "../../changes/scan/scan.ts";
import { WireRefused } from "../../changes/wire/document.ts";
import { importChangeset } from "../../changes/wire/import.ts";
import { changesOf, finishedChanges, type SettledChanges, settleCollected } from "../../run/changes/settled-run.ts";
import type { Job } from "../../run/model/job.ts";
import { permissionOf } from "../../run/model/permission.ts";
import {
  type ChangesetKeeper,
  type KeptChangesets,
  type NotBegun,
  type RunResult,
  unstartedResult,
} from "../../run/model/result.ts";
import { present } from "../../text/present.ts";
import { itemJob } from "../items/item-job.ts";
import type { ItemResult } from "../model/item.ts";
import type { ClaimedItem, FleetQueue, IntendedSettlement, Settlement } from "../model/queue.ts";
import type { ApplyingItem } from "../model/store.ts";
import type { SettleChanges } from "./fleet-parts.ts";
import { isPending, itemResult, unrunResult } from "./item-result.ts";
import type { OwnedQueue } from "./owned-queue.ts";

/** It is not known which of its changes were made, nor how its worker would have ended. */
const CUT_OFF = "ITEM_INTERRUPTED";

interface EffectPorts {
  readonly queue: FleetQueue;
  readonly changesets: KeptChangesets;
}

type Tell = (result: ItemResult) => Promise<void>;

/** What one attempt changes outside of its sandbox: written down before, so that it is never done twice. */
export class ItemEffects {
  readonly #claimed: ClaimedItem;
  readonly #ports: EffectPorts;
  readonly #startedAt: () => Date | null;
  #intent: IntendedSettlement | null = null;
  #isUnknown = false;
  #isInherited = false;

  constructor(claimed: ClaimedItem, ports: EffectPorts, startedAt: () => Date | null) {
    this.#claimed = claimed;
    this.#ports = ports;
    this.#startedAt = startedAt;
  }

  get hasBegun(): boolean {
    return this.#intent !== null;
  }

  /** Another process owns the fleet, and finishes this attempt. */
  get isInherited(): boolean {
    return this.#isInherited;
  }

  /** It is not known whether the last {@link begin} is on the disk: only the next owner of the fleet can find out. */
  get isUnknown(): boolean {
    return this.#isUnknown;
  }

  /** For {@link Job.begin}. */
  async begin(foreseen: RunResult | null): Promise<NotBegun | null> {
    const { request, attempt } = this.#claimed;
    const intent = this.#intentOf(foreseen);
    this.#isUnknown = true;
    const taken = await this.#ports.queue.begin(request.index, attempt, intent);
    this.#isUnknown = false;
    if (!taken.ok) {
      this.#isInherited = taken.code === "taken" && taken.isInherited;
      return { reason: taken.reason, isInherited: this.#isInherited };
    }
    this.#intent = intent;
    return null;
  }

  /** Finishes what was begun, if the run itself could not: see {@link finishBegun}. */
  async finish(worker: string, tell: Tell): Promise<void> {
    const { request, attempt, run } = this.#claimed;
    if (this.#intent === null) throw new Error("nothing was begun");
    const { index, key } = request;
    await finishBegun({ index, key, attempt, run, intent: this.#intent }, worker, this.#ports, tell);
  }

  #intentOf(foreseen: RunResult | null): IntendedSettlement {
    const startedAt = this.#startedAt();
    if (foreseen !== null)
      return { result: itemResult(this.#claimed, foreseen, startedAt, []), cacheKey: null, streams: foreseen };
    const { run, attempt } = this.#claimed;
    const begun = { ...unrunResult(this.#claimed, "lost"), run, attempt, startedAt: startedAt?.toISOString() ?? null };
    return { result: cutOff(begun), cacheKey: null, streams: null };
  }
}

/** The result of a run that changed files on the way, if it is cut off before its end. It never runs again by itself. */
function cutOff(result: ItemResult): ItemResult {
  const message =
    "It was cut off after it had begun to change files: none, some or all of its changes may be there, so it was not run again. Look at what it changed, then retry it.";
  return { ...result, error: { code: CUT_OFF, message } };
}

/**
 * Finishes what an attempt had begun to change whose process died, and records its result with the outcomes as they are. `tell`
 * gets it at once, unless the attempt does not count any more. Rejects if it cannot be finished now; then the next owner of the
 * fleet tries again.
 */
export async function finishBegun(
  item: ApplyingItem,
  worker: string,
  { queue, changesets }: EffectPorts,
  tell: Tell = async () => {},
): Promise<void> {
  const { index, attempt, run, intent } = item;
  const settlement = await finished(item, worker, changesets);
  // Results of a fleet whose process died do not count for others: it was not seen what they read.
  const taken = await queue.settle(index, attempt, { ...settlement, cacheKey: null, streams: intent.streams });
  if (!taken.ok) return;
  await tell(settlement.result);
  await changesets.forget(run);
}

async function finished(
  { run, intent: { result } }: ApplyingItem,
  worker: string,
  changesets: KeptChangesets,
): Promise<Pick<Settlement, "result">> {
  if (result.error?.code === CUT_OFF) {
    await changesets.withdraw([run], "its run was cut off before its end");
    return { result };
  }
  const done = await changesets.finish(run);
  if (done === null) return { result };
  if ("broken" in done) {
    const error = { code: CUT_OFF, message: `What it changed cannot be finished: ${done.broken}` };
    return { result: { ...result, status: "lost", error } };
  }
  const { changeset, failure } = finishedChanges(run, worker, done);
  if (changeset === null || isSame(changeset.counts, result.changeset?.counts)) return { result };
  const { status = result.status, error = result.error } = failure ?? {};
  const ended = { ...result, status, error, changeset };
  return { result: isPending(ended) ? { ...ended, status: "pending" } : ended };
}

function isSame(counts: Readonly<Record<string, number>>, foreseen: Readonly<Record<string, number>> = {}): boolean {
  return Object.entries(counts).every(([outcome, count]) => (foreseen[outcome] ?? 0) === count);
}

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
