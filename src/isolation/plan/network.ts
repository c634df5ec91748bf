import { packageSetup } from "../../sandbox/network/package-environment.ts";
import {
  type AllowedNetwork,
  MAX_PLACES,
  type Network,
  type NetworkPlaces,
  networkPlaces,
  PROXY,
  parseTarget,
  shownRule,
} from "../../sandbox/network/rule.ts";
import type { Sandbox } from "../../sandbox/sandbox.ts";
import type { Violation } from "../../sandbox/violation.ts";
import { CELL_HOST_NAME, HOSTS_PATH, type Plan, type PlannedNetwork } from "./plan.ts";

export interface NetworkPlanRequest {
  readonly sandbox: Sandbox;
  /** True for a cell that serves one item after another. */
  readonly serves: boolean;
}

export function planNetwork(request: NetworkPlanRequest, violations: Violation[]): Plan["network"] {
  const { network } = request.sandbox;
  if (network === false) return "none";
  if (network === true) return "open";
  if (isNothing(network)) return "none";
  const places = networkPlaces(network);
  const refuse = (reason: string): number => violations.push({ code: "NETWORK_NOT_ENFORCEABLE", reason });
  if (request.serves) refuse("a cell that serves many items has one network for all of them. Use `reuse: fresh`");
  if (places.listeners.length > MAX_PLACES)
    refuse(`it has ${places.listeners.length} addresses, and a cell can have ${MAX_PLACES}`);
  return { rules: network.allow.map(shownRule), ...places, proxy: places.listeners.includes(PROXY) };
}

/** As the Engine writes it for a container of its network `none`, with the cell's own name, which programs look up: they can still reach each other by name. */
export const LOCAL_NAMES = `127.0.0.1\tlocalhost ${CELL_HOST_NAME}
::1\tlocalhost ip6-localhost ip6-loopback
fe00::0\tip6-localnet
ff00::0\tip6-mcastprefix
ff02::1\tip6-allnodes
ff02::2\tip6-allrouters
`;

/** What a cell needs as files to reach the hosts of its network, by their paths there: their names, and the set-up of package tools. */
export function networkFiles(network: Network): Readonly<Record<string, string>> {
  if (typeof network === "boolean" || isNothing(network)) return {};
  return { [HOSTS_PATH]: LOCAL_NAMES + nameLines(networkPlaces(network).names), ...packageSetup(network).files };
}

/** Lines of the file of names. */
export function nameLines(names: NetworkPlaces["names"]): string {
  return names.map(({ name, address }) => `${address}\t${name}\n`).join("");
}

/** A worker that can be granted hosts has a place to ask for them, even if it has none yet. */
function isNothing({ allow, dynamic }: AllowedNetwork): boolean {
  return allow.length === 0 && dynamic === undefined;
}

/** The variables of such a cell: those of the proxy, and those of package tools. */
export function networkEnvironment(planned: Plan["network"], network: Network): Record<string, string> {
  if (typeof planned === "string" || typeof network === "boolean") return {};
  return { ...proxyEnvironment(planned, network), ...packageSetup(network).env };
}

/**
 * Leads programs to the proxy, for hosts that have no address of their own in the cell. Names that have one are excepted,
 * unless a rule for the proxy may be about them: programs take an exception to include every name below it.
 */
function proxyEnvironment({ names, proxy }: PlannedNetwork, network: AllowedNetwork): Record<string, string> {
  if (!proxy) return {};
  const { allow, dynamic } = network;
  const proxied = [...allow.map(({ to }) => to), ...(dynamic?.within ?? [])].flatMap((to) => {
    const parsed = parseTarget(to);
    return parsed.ok && (parsed.target.wildcard || parsed.target.port === null) ? [parsed.target.host] : [];
  });
  const related = (a: string, b: string): boolean => a === b || a.endsWith(`.${b}`) || b.endsWith(`.${a}`);
  const direct = names.map(({ name }) => name).filter((name) => !proxied.some((host) => related(name, host)));
  const url = `http://${PROXY.address}:${PROXY.port}`;
  const variables = {
    HTTP_PROXY: url,
    HTTPS_PROXY: url,
    ALL_PROXY: url,
    NO_PROXY: ["localhost", "127.0.0.1", "::1", ...direct].join(","),
  };
  const lower = Object.entries(variables).map(([name, value]) => [name.toLowerCase(), value]);
  return { ...variables, ...Object.fromEntries(lower), NODE_USE_ENV_PROXY: "1" };
}
