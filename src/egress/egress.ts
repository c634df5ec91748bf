import type { Duplex } from "node:stream";
import { judgeRequest, rulesFor } from "../sandbox/network/judge.ts";
import type { NetworkPlace } from "../sandbox/network/places.ts";
import type { DeniedTraffic, NetworkReport } from "../sandbox/network/report.ts";
import { type AllowedNetwork, isLookedInto } from "../sandbox/network/rule.ts";
import { dial } from "./dial/dial.ts";
import { judgedAddresses } from "./dial/judged-addresses.ts";
import { BOUNDS } from "./model/bounds.ts";
import { type Outlet, targetText, type Visit } from "./model/outlet.ts";
import { Meter } from "./traffic/meter.ts";
import { Traffic } from "./traffic/traffic.ts";
import { tunnel } from "./tunnel/tunnel.ts";
import { Visits } from "./visits.ts";

export interface EgressRequest {
  readonly network: AllowedNetwork;
  /** All addresses of a name, from the host's resolver. An address that is not allowed is not dialled. */
  readonly resolve: (host: string, signal: AbortSignal) => Promise<readonly string[]>;
  /** The value of a secret that a rule names. Rejects with `SecretUnavailable`. */
  readonly secretOf: (name: string, signal: AbortSignal) => Promise<string>;
  /** Called the first time that something is refused, for each host and reason. */
  readonly onDenied?: (denied: DeniedTraffic) => void;
  /** The caller's budget, from which this cell's traffic is taken too. */
  readonly parent?: Meter;
  /** Certificates, as PEM, that are trusted for hosts that are looked into. Absent: those of Node. */
  readonly ca?: readonly string[];
  /** Prefixes of URLs in the index pages of package registries that are others in the cell. */
  readonly rewrites?: readonly { readonly from: string; readonly to: string }[];
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
  let network: AllowedNetwork | false = request.network;
  const meter = new Meter(boundedLimits(network), request.parent);
  const traffic = new Traffic(meter, (denied) => request.onDenied?.(denied));
  const visits = new Visits(meter, (visit) => network !== false && visit.allowedBy(network));
  const outlet: Outlet = {
    network: () => network,
    denied: (refusal) => traffic.denied(refusal),
    line: (to) => traffic.line(to),
    async dial(target, rules, signal) {
      const judged = await judgedAddresses(target, rules, request.resolve, signal);
      if (!judged.ok) return judged;
      const socket = await dial(judged.addresses, target.port, signal);
      const to = targetText(target);
      if (socket === null)
        return { ok: false, refusal: { to, reason: "unreachable", detail: `${to} does not answer.` } };
      traffic.line(to).connected();
      return { ok: true, socket };
    },
  };
  const serve = (place: NetworkPlace, visit: Visit): void => {
    if (place.host === null) {
      visit.close();
      return;
    }
    const target = { host: place.host, port: place.port };
    const rules = () =>
      (network === false ? [] : rulesFor(network, target.host, target.port)).filter((r) => !isLookedInto(r));
    if (rules().length === 0) {
      const judged = judgeRequest(network === false ? { allow: [] } : network, target);
      if (!judged.ok) traffic.denied({ to: targetText(target), reason: judged.reason, detail: judged.detail });
      visit.close();
      return;
    }
    const onHttp = (): void => {
      traffic.denied({ to: targetText(target), reason: "malformed", detail: "HTTP is not carried yet." });
      visit.close();
    };
    tunnel({ outlet, visit, target, rules, onHttp }).catch(() => visit.close());
  };
  return {
    meter,
    accept(place, socket) {
      const visit = visits.open(socket);
      const to = place.host === null ? "proxy" : `${place.host}:${place.port}`;
      if (visit === null) traffic.denied({ to, reason: "limit", detail: "Too many connections at once." });
      else serve(place, visit);
    },
    replace(next) {
      network = next;
      if (next !== false) meter.limit(boundedLimits(next));
      visits.review();
    },
    report: () => traffic.report(),
    async [Symbol.asyncDispose]() {
      network = false;
      await visits.closeAll();
    },
  };
}

function boundedLimits({ limits }: AllowedNetwork) {
  return { connections: BOUNDS.connections, ...limits };
}
