import type { Meter } from "../../egress/traffic/meter.ts";
import type { Accept } from "../../isolation/port/cell.ts";
import { lesserNetwork } from "../../sandbox/network/lesser-network.ts";
import type { NetworkReport } from "../../sandbox/network/report.ts";
import type { AllowedNetwork, Network } from "../../sandbox/network/rule.ts";
import type { NetworkHost, Records } from "../model/environment.ts";
import { identityOf, type Job } from "../model/job.ts";

/**
 * The network of one run, for all its cells: what they may reach, under one budget. Disposing closes every connection, and
 * records what there was.
 */
export interface RunNetwork extends AsyncDisposable {
  /** Null: its cells have no allow list. */
  readonly accept: Accept | null;
  /** Whose budget the runs that it calls use too: its own, or its caller's. */
  readonly meter: Meter | null;
  /** For the result of the run; without an allow list it has nothing. */
  report(): { readonly network?: NetworkReport };
  /**
   * Another allow list from now on, as after a grant or a revocation; false: none at all. Connections that it does not allow
   * are closed.
   */
  replace(network: AllowedNetwork | false): void;
  /** Only these of its hosts, until it is disposed of; null: all of them. One at a time. Closes what is not allowed then. */
  limitTo(only: readonly string[] | null): Disposable;
}

/** So many refusals of one run are reported at once; all of them are counted at its end. */
const MAX_TOLD = 20;

/** `network`: of the run's sandbox. The judging is loaded for a run that needs it: others start without. */
export async function openRunNetwork(job: Job, network: Network, env: NetworkHost & Records): Promise<RunNetwork> {
  const { callerMeter } = job;
  if (typeof network === "boolean") return { ...NO_NETWORK, meter: callerMeter };
  const { openEgress } = await import("../../egress/egress.ts");
  const who = identityOf(job);
  let told = 0;
  const egress = openEgress({
    network,
    resolve: env.resolveName,
    secretOf: env.secretOf,
    ...(env.trustedRoots === undefined ? {} : { ca: env.trustedRoots }),
    ...(callerMeter === null ? {} : { parent: callerMeter }),
    onDenied: (denied) => {
      told += 1;
      if (told <= MAX_TOLD) env.emit({ type: "network_denied", ...who, denied });
    },
  });
  let isOver = false;
  let whole: AllowedNetwork | false = network;
  let limit: readonly string[] | null = null;
  const adopt = (): void => {
    const lesser = limit === null ? null : lesserNetwork(whole, limit);
    egress.replace(lesser === null ? whole : lesser.ok && lesser.network);
  };
  return {
    accept: (place, socket) => egress.accept(place, socket),
    meter: egress.meter,
    report: () => ({ network: egress.report() }),
    replace(next) {
      whole = next;
      adopt();
    },
    limitTo(only) {
      if (only === null) return NO_LIMIT;
      if (limit !== null) throw new Error("the network of a run is limited for one command at a time");
      limit = only;
      adopt();
      return {
        [Symbol.dispose]() {
          limit = null;
          adopt();
        },
      };
    },
    async [Symbol.asyncDispose]() {
      if (isOver) return;
      isOver = true;
      await egress[Symbol.asyncDispose]();
      const report = egress.report();
      if (report.allowed.length + report.denied.length > 0) env.emit({ type: "network_used", ...who, report });
    },
  };
}

const NO_LIMIT: Disposable = { [Symbol.dispose]: () => {} };

const NO_NETWORK = {
  accept: null,
  report: () => ({}),
  replace: () => {},
  limitTo: () => NO_LIMIT,
  [Symbol.asyncDispose]: async () => {},
};
