import { isIP } from "node:net";
import type { NetworkRule } from "../../sandbox/network/rule.ts";
import { BOUNDS } from "../model/bounds.ts";
import type { Refusal } from "../model/refusal.ts";
import { isWithin, plainAddress, specialKind } from "./special-addresses.ts";

/** All addresses of a name, as the host's resolver has them. */
export type Resolve = (host: string, signal: AbortSignal) => Promise<readonly string[]>;

/** Addresses that may be dialled, or why there are none. */
export type JudgedAddresses =
  | { readonly ok: true; readonly addresses: readonly string[] }
  | { readonly ok: false; readonly refusal: Refusal };

/** Looks a name up and keeps the addresses that one of the rules allows. Only a host that a rule names comes here. */
export async function judgedAddresses(
  { host, port }: { readonly host: string; readonly port: number },
  rules: readonly NetworkRule[],
  resolve: Resolve,
  signal: AbortSignal,
): Promise<JudgedAddresses> {
  const to = `${host}:${port}`;
  const refuse = (reason: Refusal["reason"], detail: string): JudgedAddresses => ({
    ok: false,
    refusal: { to, reason, detail },
  });
  const literal = host.replace(/^\[(.*)\]$/, "$1");
  const found = isIP(literal) === 0 ? await resolved(host, resolve, signal) : [literal];
  const plain = [...new Set(found.map(plainAddress))].filter((address) => address !== null);
  if (plain.length === 0) return refuse("unresolved", `${host} has no address.`);
  const judged = plain.map((address) => ({ address, fault: addressFault(address, rules) }));
  const allowed = judged.filter(({ fault }) => fault === null).map(({ address }) => address);
  if (allowed.length > 0) return { ok: true, addresses: interleaved(allowed).slice(0, BOUNDS.addresses) };
  return refuse("address", `${host} leads to ${judged[0]?.fault}.`);
}

/** True if an address that was dialled may still be dialled. */
export function addressStillAllowed(address: string, rules: readonly NetworkRule[]): boolean {
  const plain = plainAddress(address);
  return plain !== null && addressFault(plain, rules) === null;
}

/** Null if a rule allows the address. Without `addresses`, a rule allows every public one. */
function addressFault(address: string, rules: readonly NetworkRule[]): string | null {
  const faults = rules.map(({ addresses }) => {
    if (addresses !== undefined) return isWithin(address, addresses) ? null : "an address that the rule does not name";
    const kind = specialKind(address);
    return kind === null ? null : `${kind}, which \`addresses\` of its rule must name`;
  });
  return faults.includes(null) ? null : (faults[0] ?? "an address that no rule allows");
}

async function resolved(host: string, resolve: Resolve, signal: AbortSignal): Promise<readonly string[]> {
  const bounded = AbortSignal.any([signal, AbortSignal.timeout(BOUNDS.resolveTimeoutMs)]);
  const aborted = new Promise<readonly string[]>((done) => {
    bounded.addEventListener("abort", () => done([]), { once: true });
  });
  // An error of the resolver may name servers of the host; a cell sees only that there is no address.
  return Promise.race([resolve(host, bounded).catch(() => []), aborted]);
}

/** One of each family in turn, beginning with the family of the first, so that one that is out of order costs one attempt. */
function interleaved(addresses: readonly string[]): string[] {
  const family = isIP(addresses[0] ?? "");
  const [same, other] = [addresses.filter((a) => isIP(a) === family), addresses.filter((a) => isIP(a) !== family)];
  return same.flatMap((address, index) => [address, ...other.slice(index, index + 1)]).concat(other.slice(same.length));
}
