import type { Duplex } from "node:stream";
import { createSecureContext } from "node:tls";
import type { Rewrite } from "../sandbox/network/package-environment.ts";
import type { NetworkPlace } from "../sandbox/network/places.ts";
import type { DeniedTraffic, NetworkReport } from "../sandbox/network/report.ts";
import type { AllowedNetwork, NetworkLimits } from "../sandbox/network/rule.ts";
import { dial } from "./dial/dial.ts";
import { judgedAddresses } from "./dial/judged-addresses.ts";
import { Entrance } from "./entrance.ts";
import { rawAnswer } from "./http/fault.ts";
import { SecretValues } from "./http/secret-values.ts";
import { BOUNDS } from "./model/bounds.ts";
import { type Outlet, type Target, targetText } from "./model/outlet.ts";
import { Meter } from "./traffic/meter.ts";
import { Traffic } from "./traffic/traffic.ts";
import { Visits } from "./visits.ts";

export interface EgressRequest {
  readonly network: AllowedNetwork;
  /** All addresses of a name, from the host's resolver. An address that is not allowed is not dialled. */
  readonly resolve: (host: string, signal: AbortSignal) => Promise<readonly string[]>;
  /** The value of a secret that a rule names. Rejects with `SecretUnavailable`. */
  readonly secretOf: (name: string, signal: AbortSignal) => Promise<string>;
  /**
   * Asks the user for a host that is not allowed, while the client of the proxy waits. True if it was granted; then {@link Egress.replace}
   * was called. Absent: what is not allowed is refused at once.
   */
  readonly isGranted?: (to: string) => Promise<boolean>;
  /** Called the first time that something is refused, for each host and reason. */
  readonly onDenied?: (denied: DeniedTraffic) => void;
  /**
   * Called when an allowed host is about to be dialled; `isNamed`: by a rule without a wildcard. What it returns is called when that
   * is over; `code`: null if the host answered.
   */
  readonly onDialing?: (target: Target, isNamed: boolean) => (code: string | null) => void;
  /** The caller's budget, from which this cell's traffic is taken too. */
  readonly parent?: Meter;
  /** Certificates, as PEM, that are trusted for hosts that are looked into. Absent: those of Node. */
  readonly ca?: readonly string[];
  /** Prefixes of URLs in the index pages of package registries that are others in the cell. */
  readonly rewrites?: readonly Rewrite[];
}

/** The network of one cell. Disposing closes all its connections within a second. */
export interface Egress extends AsyncDisposable {
  readonly meter: Meter;
  /** Takes over a connection of the cell to a place. Never throws. */
  accept(place: NetworkPlace, socket: Duplex): void;
  /** Another network from now on, after a grant or a revocation. Closes what is no longer allowed. */
  replace(network: AllowedNetwork | false): void;
  report(): NetworkReport;
}

export function openEgress(request: EgressRequest): Egress {
  const ended = new AbortController();
  let network: AllowedNetwork | false = request.network;
  const meter = new Meter(boundedLimits(network), request.parent);
  const traffic = new Traffic(meter, (denied) => request.onDenied?.(denied));
  const visits = new Visits(meter);
  const outlet: Outlet = {
    network: () => network,
    isGranted: async (target) => (await request.isGranted?.(targetText(target))) ?? false,
    denied: (refusal) => traffic.denied(refusal),
    line: (to) => traffic.line(to),
    async dial(target, rules, signal, onread) {
      const dialled = request.onDialing?.(
        target,
        rules.some(({ to }) => !to.startsWith("*.")),
      );
      const judged = await judgedAddresses(target, rules, request.resolve, signal);
      if (!judged.ok) {
        dialled?.(judged.refusal.reason);
        return judged;
      }
      const socket = await dial(judged.addresses, target.port, signal, onread);
      const to = targetText(target);
      dialled?.(socket === null ? "unreachable" : null);
      if (socket === null)
        return { ok: false, refusal: { to, reason: "unreachable", detail: `${to} does not answer.` } };
      traffic.line(to).connected();
      return { ok: true, socket };
    },
  };
  const entrance = new Entrance({
    outlet,
    secrets: new SecretValues((name) => request.secretOf(name, ended.signal)),
    secureContext: createSecureContext(request.ca === undefined ? {} : { ca: [...request.ca] }),
    rewrites: request.rewrites ?? [],
  });
  return {
    meter,
    accept(place, socket) {
      const refusal = { reason: "limit", detail: "Too many connections at once." } as const;
      const visit = visits.open(socket, place.port === 443 ? "" : rawAnswer(refusal));
      if (visit !== null) entrance.enter(place, visit);
      else traffic.denied({ ...refusal, to: place.host === null ? "proxy" : `${place.host}:${place.port}` });
    },
    replace(next) {
      network = next;
      if (next !== false) meter.limit(boundedLimits(next));
      visits.review();
    },
    report: () => traffic.report(),
    async [Symbol.asyncDispose]() {
      network = false;
      ended.abort();
      entrance[Symbol.dispose]();
      await visits.closeAll();
    },
  };
}

function boundedLimits({ limits }: AllowedNetwork): NetworkLimits {
  return { connections: BOUNDS.connections, ...limits };
}
