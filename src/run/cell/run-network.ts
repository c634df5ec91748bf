import type { Meter } from "../../egress/traffic/traffic.ts";
import type { Accept } from "../../isolation/port/cell.ts";
import { rulesWithin } from "../../sandbox/network/hosts.ts";
import type { NetworkReport } from "../../sandbox/network/judge.ts";
import { packageRewrites } from "../../sandbox/network/package-environment.ts";
import {
  type AllowedNetwork,
  isLookedInto,
  lesserNetwork,
  type NetworkPlace,
  type NetworkRule,
} from "../../sandbox/network/rule.ts";
import { grantedRules, networkWith } from "../../sandbox/sandbox.ts";
import type { ExecToolRequest } from "../../tools/hands.ts";
import { surroundingsOf } from "../grants/access-request.ts";
import { asksByConnection } from "../grants/request-host.ts";
import type { CellHost, Declared, NetworkHost, Records, RunConsent } from "../model/environment.ts";
import type { Grantee } from "../model/grantee.ts";
import { identityOf, type Job } from "../model/job.ts";

/** What runs beside a run, as all its cells reach it. */
export interface CellServices {
  /** Hosts at 127.0.0.1. */
  readonly names: readonly string[];
  readonly places: readonly NetworkPlace[];
  readonly accept: Accept;
}

/**
 * The network of one run, for all its cells: what they may reach, under one budget. Disposing closes every connection, and
 * records what there was.
 */
export interface RunNetwork extends AsyncDisposable {
  /** Null: its cells have no allow list. */
  readonly accept: Accept | null;
  /** Null: nothing runs beside it. */
  readonly services: CellServices | null;
  /** Whose budget the runs that it calls use too: its own, or its caller's. */
  readonly meter: Meter | null;
  /** For the result of the run; without an allow list it has nothing. */
  report(): { readonly network?: NetworkReport };
  /** Calls back with the list as it is now, and as it is after each grant, which waits for it. Dispose to stop. */
  follow(listener: (network: AllowedNetwork) => Promise<void>): Promise<AsyncDisposable>;
  /** The hosts that the command of now is limited to; null: it is not. */
  readonly limit: readonly string[] | null;
  /**
   * Only these of its hosts, until it is disposed of; null: all of them. `granted`: what a shell rule gives the one command beyond them. One at a time.
   * Closes what is not allowed then.
   */
  limitTo(only: readonly string[] | null, granted?: ExecToolRequest["granted"]): Disposable;
}

/** So many refusals of one run are reported at once; all of them are counted at its end. */
const MAX_TOLD = 20;

/**
 * Follows what the run is granted, and asks for hosts that its programs try to reach and that it may be granted. The judging is
 * loaded for a run that needs it: others start without.
 */
export async function openRunNetwork(
  job: Job,
  grantee: Grantee,
  env: NetworkHost & Declared & CellHost & RunConsent & Records,
  services: CellServices | null = null,
): Promise<RunNetwork> {
  const { callerMeter } = job;
  const { network, commandNetwork = network } = grantee.sandbox;
  if (typeof network === "boolean" || typeof commandNetwork === "boolean")
    return { ...NO_NETWORK, services, meter: callerMeter };
  const { openEgress } = await import("../../egress/egress.ts");
  const who = identityOf(job);
  const over = new AbortController();
  const trouble = (detail: string): void => env.emit({ type: "trouble", ...who, detail });
  const ask = asksByConnection(grantee, surroundingsOf(job, env), AbortSignal.any([job.signal, over.signal]), trouble);
  let told = 0;
  let limit: readonly string[] | null = null;
  // A command that was given less has all that it is meant to have.
  const isGranted = async (to: string): Promise<boolean> => limit === null && (await ask(to));
  const egress = openEgress({
    network,
    // A user who learns the network of a worker wants it to continue. Any other program is answered at once, and may try again.
    ...(grantee.learns ? { isGranted } : {}),
    resolve: env.resolveName,
    secretOf: env.secretOf,
    ...(readsRequests(commandNetwork) ? { ca: await env.trustedRoots() } : {}),
    rewrites: packageRewrites(commandNetwork),
    ...(callerMeter === null ? {} : { parent: callerMeter }),
    onDialing: ({ host: dialled, port }, isNamed) => {
      const host = isNamed ? dialled : null;
      const begunAt = env.now();
      return (code) => {
        const measure = { what: "connection", host, port, ms: env.now() - begunAt, code } as const;
        env.emit({ type: "measured", ...who, measure });
      };
    },
    onDenied: (denied) => {
      told += 1;
      if (told <= MAX_TOLD) env.emit({ type: "network_denied", ...who, denied });
      if (denied.reason === "host") void isGranted(denied.to);
    },
  });
  let isOver = false;
  let whole: AllowedNetwork | false = network;
  let more: readonly NetworkRule[] = [];
  const adopt = (): void => {
    const now = more.length === 0 ? whole : networkWith(whole, more);
    const lesser = limit === null ? null : lesserNetwork(now, limit);
    egress.replace(lesser === null ? now : lesser.ok && lesser.network);
  };
  const followers = new Set<(network: AllowedNetwork) => Promise<void>>();
  const unfollow = grantee.onNetwork(async (next) => {
    if (next === true) return;
    whole = next;
    adopt();
    if (next !== false) await Promise.all([...followers].map((listener) => listener(next)));
  });
  return {
    accept: (place, socket) => egress.accept(place, socket),
    services,
    meter: egress.meter,
    report: () => ({ network: egress.report() }),
    async follow(listener) {
      followers.add(listener);
      if (whole !== false) await listener(whole);
      return { [Symbol.asyncDispose]: async () => void followers.delete(listener) };
    },
    get limit() {
      return limit;
    },
    limitTo(only, granted) {
      // A caller may have lost hosts since.
      const given = rulesWithin(grantedRules(grantee.sandbox, granted), grantee.parent?.sandbox.network ?? true);
      if (only === null && given.length === 0) return NO_LIMIT;
      if (limit !== null || more.length > 0)
        throw new Error("the network of a run is limited for one command at a time");
      limit = only;
      more = given;
      adopt();
      return {
        [Symbol.dispose]() {
          limit = null;
          more = [];
          adopt();
        },
      };
    },
    async [Symbol.asyncDispose]() {
      if (isOver) return;
      isOver = true;
      unfollow();
      over.abort(new Error("the run has ended"));
      await egress[Symbol.asyncDispose]();
      const report = egress.report();
      if (report.allowed.length + report.denied.length > 0) env.emit({ type: "network_used", ...who, report });
    },
  };
}

/** Also a host that is granted later may be looked into. */
function readsRequests({ allow, dynamic }: AllowedNetwork): boolean {
  return dynamic !== undefined || allow.some(isLookedInto);
}

const NO_LIMIT: Disposable = { [Symbol.dispose]: () => {} };

const NO_NETWORK = {
  accept: null,
  report: () => ({}),
  follow: async () => ({ [Symbol.asyncDispose]: async () => {} }),
  limit: null,
  limitTo: () => NO_LIMIT,
  [Symbol.asyncDispose]: async () => {},
};
