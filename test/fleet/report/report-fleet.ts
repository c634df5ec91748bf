import type { ItemResult } from "../../../src/fleet/model/item.ts";
import type { ReportData, ReportFleet, ReportItem } from "../../../src/fleet/report/measures/gathered.ts";

/** When the fleets of these tests begin. */
export const BEGIN_MS = Date.UTC(2025, 0, 31, 12);

export interface SpecialItem extends Partial<ItemResult> {
  /** Milliseconds after the beginning. */
  readonly atMs?: number;
}

/** A result that succeeded, but for what is said otherwise. */
export function result(index: number, { atMs = 0, durationMs = 100, ...special }: SpecialItem = {}): ItemResult {
  return {
    index,
    key: `inbox/${index}.pdf`,
    status: "succeeded",
    run: index.toString(16).padStart(12, "0"),
    attempt: 1,
    exitCode: 0,
    output: null,
    error: null,
    stderrLine: null,
    fields: {},
    startedAt: new Date(BEGIN_MS + atMs).toISOString(),
    endedAt: new Date(BEGIN_MS + atMs + durationMs).toISOString(),
    durationMs,
    memoryBytesPeak: 8 * 1024 ** 2,
    ...special,
  };
}

export function reportOf(
  results: ReportData["results"],
  items: number,
  special: Partial<ReportFleet> = {},
): ReportData {
  const fleet: ReportFleet = {
    id: "0123456789ab",
    worker: "extract-text",
    source: "--over inbox/*.pdf",
    policy: null,
    reuse: "fresh",
    concurrency: 2,
    state: "done",
    why: null,
    createdAt: new Date(BEGIN_MS - 2000).toISOString(),
    endedAt: new Date(BEGIN_MS + 60_000).toISOString(),
    items,
    ...special,
  };
  return { fleet, results, madeAt: new Date(BEGIN_MS + 90_000).toISOString() };
}

/** As many items as wanted, 16 at a time, of which each hundredth fails; each brings an output that nobody shows. */
export function* manyResults(count: number, outputOf: (index: number) => unknown = () => null): Generator<ReportItem> {
  for (let index = 0; index < count; index += 1) {
    const durationMs = 20 + ((index * 7919) % 100);
    const failed = index % 100 === 99;
    yield result(index, {
      atMs: Math.floor(index / 16) * 120,
      durationMs,
      output: outputOf(index),
      ...(failed && { status: "failed", exitCode: 1, error: { code: "EXIT", message: `item ${index} ended with 1` } }),
    });
  }
}
