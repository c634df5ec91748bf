import { readFileSync } from "node:fs";
import { setTimeout as sleep } from "node:timers/promises";
import { parseArgs } from "node:util";
import { startService, type TestService } from "../../test/serve/service-client.ts";
import { benchProject } from "./served.ts";

/*
 * What it costs a service that its metrics are read: processor time of its process for each item of a scrubbed fleet, with and without a
 * monitoring system, in turns. `node bench/service/metrics.ts --items 2000 --rounds 6 --every 1`
 */

export interface MetricsOptions {
  readonly items: number;
  /** Each has one fleet with, and one without; which is first alternates. */
  readonly rounds: number;
  /** Seconds between two reads. */
  readonly every: number;
  readonly print: (line: string) => void;
}

export interface MetricsReport {
  /** Milliseconds of a processor for each item, by round. */
  readonly withMs: readonly number[];
  readonly withoutMs: readonly number[];
  /** Of the medians, in percent. */
  readonly percent: number;
  /** Half of the distance between the quartiles of the rounds without, in percent of their median: less than this is no difference. */
  readonly noisePercent: number;
  /** Milliseconds of a processor for one read, measured alone. */
  readonly readMs: number;
  /** What that is of the processor time of a fleet, in percent: free of the noise between fleets. */
  readonly derivedPercent: number;
}

const MOST_PERCENT = 1;
const READS = 300;
/** A fleet that takes longer is stuck. */
const MAX_FLEET_MS = 10 * 60_000;

export async function metricsCost({ items, rounds, every, print }: MetricsOptions): Promise<MetricsReport> {
  await using project = await benchProject({}, { quick: { command: ["true"] } });
  await using service = await startService(project, { args: ["--log-level", "info"] });
  const spent = (): number => processorMs(service.child.pid ?? 0);
  // The first fleet makes the cells' images known and fills caches.
  await fleetOf(service, Math.min(items, 200));
  const [withMs, withoutMs, wallMs] = [[] as number[], [] as number[], [] as number[]];
  for (let round = 0; round < rounds; round += 1)
    for (const isRead of round % 2 === 0 ? [true, false] : [false, true]) {
      const reader = new AbortController();
      const reading = isRead ? readEvery(service, every * 1000, reader.signal) : Promise.resolve();
      const [before, began] = [spent(), performance.now()];
      await fleetOf(service, items);
      const ms = (spent() - before) / items;
      if (isRead) wallMs.push(performance.now() - began);
      reader.abort();
      await reading;
      (isRead ? withMs : withoutMs).push(ms);
      print(`round ${round + 1}, ${isRead ? "read" : "not read"}: ${ms.toFixed(3)} ms for each item`);
    }
  const before = spent();
  for (let read = 0; read < READS; read += 1) await service.ask("GET", "/metrics");
  const readMs = (spent() - before) / READS;
  const plain = quantile(withoutMs, 0.5);
  const reads = quantile(wallMs, 0.5) / (every * 1000);
  return {
    ...{ withMs, withoutMs, readMs },
    percent: (quantile(withMs, 0.5) / plain - 1) * 100,
    noisePercent: ((quantile(withoutMs, 0.75) - quantile(withoutMs, 0.25)) / 2 / plain) * 100,
    derivedPercent: ((readMs * reads) / (plain * items)) * 100,
  };
}

async function fleetOf(service: TestService, count: number): Promise<void> {
  const items = Array.from({ length: count }, (_, index) => ({ key: `k${index}` }));
  const body = { worker: "quick", items, template: { key: "{key}" }, reuse: "scrubbed", policy: "batch", cache: false };
  const { status, json } = await service.ask("POST", "/v1/fleets", { body });
  if (status !== 202) throw new Error(`the fleet was not started: ${status} ${JSON.stringify(json)}`);
  const until = performance.now() + MAX_FLEET_MS;
  while (performance.now() < until) {
    const { state, counts } = (await service.ask("GET", `/v1/fleets/${json.fleet}`)).json;
    if (state === "done" && counts.failed === 0) return;
    if (state === "done") throw new Error(`${counts.failed} items failed`);
    await sleep(500);
  }
  throw new Error(`fleet ${json.fleet} is not done after ${MAX_FLEET_MS} ms`);
}

async function readEvery(service: TestService, everyMs: number, signal: AbortSignal): Promise<void> {
  while (!signal.aborted) {
    await service.ask("GET", "/metrics");
    await sleep(everyMs, undefined, { signal }).catch(() => {});
  }
}

/** User and system time of the process, of all its threads, without its children's. */
function processorMs(pid: number): number {
  const text = readFileSync(`/proc/${pid}/stat`, "utf8");
  const [user = "0", system = "0"] = text
    .slice(text.lastIndexOf(")") + 2)
    .split(" ")
    .slice(11, 13);
  // Linux counts in hundredths of a second.
  return (Number(user) + Number(system)) * 10;
}

function quantile(values: readonly number[], part: number): number {
  const sorted = values.toSorted((a, b) => a - b);
  const at = (sorted.length - 1) * part;
  const [low = 0, high = low] = [sorted[Math.floor(at)], sorted[Math.ceil(at)]];
  return low + (high - low) * (at - Math.floor(at));
}

if (import.meta.main) {
  const { values } = parseArgs({
    options: {
      items: { type: "string", default: "2000" },
      rounds: { type: "string", default: "6" },
      every: { type: "string", default: "1" },
    },
  });
  const counts = { items: Number(values.items), rounds: Number(values.rounds), every: Number(values.every) };
  const print = (line: string): void => void process.stdout.write(`${line}\n`);
  const report = await metricsCost({ ...counts, print });
  const { percent, noisePercent, readMs, derivedPercent } = report;
  print(
    `read every ${counts.every} s: ${percent.toFixed(2)} % more than not read (fleets differ by ${noisePercent.toFixed(2)} %)`,
  );
  print(`one read takes ${readMs.toFixed(2)} ms: ${derivedPercent.toFixed(2)} % of a fleet`);
  const isMet = derivedPercent <= MOST_PERCENT && percent <= MOST_PERCENT + noisePercent;
  print(`verdict: ${isMet ? "met" : "MISSED"}: at most ${MOST_PERCENT} %`);
  process.exitCode = isMet ? 0 : 1;
}
