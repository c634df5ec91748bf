import type { Claim, ItemCounts } from "../../../src/fleet/model/queue.ts";

interface ModelItem {
  state: "queued" | "running" | "done";
  attempt: number;
  /** 0: never given up. */
  notBefore: number;
  status: string | null;
  /** Its effect has begun: it is not given up. */
  begun: boolean;
}

/** What a queue promises, in the plainest way: an array that is looked through from its beginning. */
export class QueueModel {
  readonly items: ModelItem[];
  fleet: Claim["fleet"] = "running";

  constructor(count: number) {
    this.items = Array.from({ length: count }, () => ({
      state: "queued",
      attempt: 0,
      notBefore: 0,
      status: null,
      begun: false,
    }));
  }

  claim(count: number, now: number): { claimed: [index: number, attempt: number][]; next: number | null } {
    if (this.fleet !== "running") return { claimed: [], next: null };
    const queued = [...this.items.entries()]
      .filter(([, { state }]) => state === "queued")
      .sort(([a, first], [b, second]) => first.notBefore - second.notBefore || a - b);
    const due = queued.filter(([, { notBefore }]) => notBefore <= now).slice(0, count);
    const later = queued.filter(([, { notBefore }]) => notBefore > now);
    for (const [, item] of due) Object.assign(item, { state: "running", attempt: item.attempt + 1 });
    return { claimed: due.map(([index, { attempt }]) => [index, attempt]), next: later[0]?.[1].notBefore ?? null };
  }

  begin(index: number, attempt: number): boolean {
    return this.#leave(index, attempt, { begun: true });
  }

  settle(index: number, attempt: number, status: string): boolean {
    return this.#leave(index, attempt, { state: "done", status, begun: false });
  }

  requeue(index: number, attempt: number, notBefore: number): boolean {
    if (this.items[index]?.begun) return false;
    return this.#leave(index, attempt, { state: "queued", notBefore: Math.max(notBefore, 1) });
  }

  cancel(): number {
    this.fleet = "cancelled";
    const queued = this.items.filter(({ state }) => state === "queued");
    for (const item of queued) Object.assign(item, { state: "done", status: "cancelled" });
    return queued.length;
  }

  counts(): ItemCounts {
    const of = (wanted: string): number => this.items.filter(({ state }) => state === wanted).length;
    const failed = this.items.filter(({ status }) => status === "failed" || status === "lost").length;
    const pending = this.items.filter(({ status }) => status === "pending").length;
    return {
      total: this.items.length,
      queued: of("queued"),
      running: of("running"),
      done: of("done"),
      failed,
      pending,
    };
  }

  #leave(index: number, attempt: number, change: Partial<ModelItem>): boolean {
    const item = this.items[index];
    if (item?.state !== "running" || item.attempt !== attempt) return false;
    Object.assign(item, change);
    return true;
  }
}
