import type { RunResult } from "../../run/model/result.ts";
import type { DeniedTraffic } from "../../sandbox/network/judge.ts";
import { printableLine } from "../../text/visible.ts";

/** So many hosts are named one by one. */
const MAX_DENIED = 20;

/** What a run and the runs that it called were refused on their networks, a line for each host and reason. */
export function deniedLines(result: RunResult): string[] {
  const denied = deniedIn(result);
  const lines = denied.slice(0, MAX_DENIED).map(({ worker, line }) => deniedLine(worker, line));
  return denied.length <= MAX_DENIED ? lines : [...lines, `corral: network: and ${denied.length - MAX_DENIED} more`];
}

/** A worker chose the host, so the line is escaped for the terminal. */
export function deniedLine(worker: string, { to, count, detail }: DeniedTraffic): string {
  const times = count === 1 ? "" : ` ×${count}`;
  const head = `corral: network: denied ${printableLine(to, 300)}${times} (${printableLine(worker, 80)})`;
  return `${head}: ${printableLine(detail, 500)}`;
}

function deniedIn({ worker, network, calls }: RunResult): { readonly worker: string; readonly line: DeniedTraffic }[] {
  return [...(network?.denied ?? []).map((line) => ({ worker, line })), ...calls.flatMap(deniedIn)];
}
