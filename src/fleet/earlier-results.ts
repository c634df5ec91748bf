import { inParallel } from "../blobs/model/in-parallel.ts";
import { newRunId } from "../run/model/job.ts";
import type { FleetLoop, OwnedParts } from "./fleet-parts.ts";
import { cachedResult } from "./item-result.ts";
import { itemJob } from "./items/item-job.ts";
import type { ItemRequest, ItemResult } from "./model/item.ts";
import type { ResultRecorder } from "./result-recorder.ts";

/** Items that are looked up together. */
const PAGE = 200;
/** If so many items in a row have no earlier result, the others are not looked up: most fleets are new. */
const MAX_UNKNOWN = 1000;

/**
 * Machines look up no earlier results: they know nothing of other fleets. So the fleet's owner looks up the items that wait, in their order,
 * and those that succeeded before end without an attempt. After the first page, machines run items beside it.
 */
export class EarlierResults {
  readonly #fleet: OwnedParts;
  readonly #loop: FleetLoop;
  readonly #recorder: ResultRecorder;
  #after = -1;
  #unknown = 0;

  constructor(fleet: OwnedParts, loop: FleetLoop, recorder: ResultRecorder) {
    this.#fleet = fleet;
    this.#loop = loop;
    this.#recorder = recorder;
  }

  async all(): Promise<void> {
    while (await this.page());
  }

  /** False: nothing is left to look up. */
  async page(): Promise<boolean> {
    const { id, elsewhere, cache } = this.#fleet;
    if (elsewhere === null || cache === null || this.#loop.draining.aborted || this.#unknown >= MAX_UNKNOWN)
      return false;
    const waiting = await elsewhere.work.waiting(id, { after: this.#after, limit: PAGE });
    this.#after = waiting.at(-1)?.index ?? this.#after;
    const found: ItemResult[] = [];
    await inParallel(waiting, async (request) => {
      const earlier = await this.#earlier(request);
      if (earlier !== null) found.push(cachedResult({ request }, earlier));
    });
    this.#unknown = found.length === 0 ? this.#unknown + waiting.length : 0;
    const ended = new Set(found.length === 0 ? [] : await elsewhere.work.settleWaiting(id, found));
    for (const result of found) if (ended.has(result.index)) await this.#recorder.tell(result);
    if (ended.size > 0) this.#loop.wake();
    return waiting.length === PAGE;
  }

  async #earlier(request: ItemRequest): Promise<ItemResult | null> {
    const { id, job, cache, stop } = this.#fleet;
    if (cache === null || request.refusal !== undefined) return null;
    const asked = { run: newRunId(), fleet: id, signal: stop, turn: async () => {} };
    const entry = await cache.entryOf(itemJob(job, request, asked));
    return entry === null ? null : await cache.earlier(entry);
  }
}
