import { finishedChanges } from "../../run/changes/settled-run.ts";
import type { KeptChangesets, NotBegun, RunResult } from "../../run/model/result.ts";
import type { ItemResult } from "../model/item.ts";
import type { ClaimedItem, FleetQueue, IntendedSettlement, Settlement } from "../model/queue.ts";
import type { ApplyingItem } from "../model/store.ts";
import { isPending, itemResult, unrunResult } from "./item-result.ts";

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
