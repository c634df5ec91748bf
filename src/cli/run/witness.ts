import { grantedMounts } from "../../isolation/plan/plan.ts";
import type { RunEvent } from "../../run/model/events.ts";
import type { TreeRun } from "./tree.ts";

/** More runs of one tree than this are counted and not kept: a worker can make refused calls as fast as it likes. */
const MAX_RUNS = 5_000;

type Mutable<T> = { -readonly [Key in keyof T]: T[Key] };

interface Record extends Mutable<Omit<TreeRun, "calls">> {
  readonly requestedAt: number;
  readonly calls: Record[];
}

/** Watches the events of one root run, and knows at any moment what its tree looks like. Keeps no output. */
export class Witness {
  readonly #now: () => number;
  readonly #records = new Map<string, Record>();
  #root: Record | null = null;

  /** `now`: milliseconds of a clock that only goes forward. */
  constructor(now: () => number = () => performance.now()) {
    this.#now = now;
  }

  see(event: RunEvent): void {
    if (event.type === "requested") this.#begin(event);
    const record = this.#records.get(event.run);
    if (record === undefined) return;
    if (event.type === "started") {
      record.status = "running";
      record.mounts = grantedMounts(event.plan).map(({ path, mode }) => ({ path, mode }));
    } else if (event.type === "agent_started") {
      record.status = "running";
      record.mounts = event.mounts;
    } else if (event.type === "ended") {
      const { status, exitCode, signal, durationMs, error } = event.result;
      Object.assign(record, { status, exitCode, signal, durationMs, message: error?.message ?? null });
    }
  }

  /** Null before the root run was asked for. */
  tree(): TreeRun | null {
    return this.#root === null ? null : this.#drawn(this.#root);
  }

  #begin({ run, parent, worker, attachments }: RunEvent): void {
    const caller = parent === null ? null : (this.#records.get(parent) ?? this.#root);
    if (this.#records.size >= MAX_RUNS) {
      if (caller !== null) caller.unrecorded += 1;
      return;
    }
    const record: Record = {
      worker,
      attachments,
      requestedAt: this.#now(),
      status: "waiting",
      exitCode: null,
      signal: null,
      durationMs: 0,
      mounts: null,
      message: null,
      unrecorded: 0,
      calls: [],
    };
    this.#records.set(run, record);
    if (caller === null) this.#root = record;
    else caller.calls.push(record);
  }

  #drawn({ requestedAt, calls, ...record }: Record): TreeRun {
    const going = record.status === "waiting" || record.status === "running";
    const durationMs = going ? this.#now() - requestedAt : record.durationMs;
    return { ...record, durationMs, calls: calls.map((call) => this.#drawn(call)) };
  }
}
