import { connect, isIP, type OnReadOpts, type Socket } from "node:net";
import { networkInterfaces } from "node:os";
import { addressText, parseBlock } from "../../sandbox/network/address.ts";
import { addressAllowed } from "../../sandbox/network/judge.ts";
import type { NetworkRule } from "../../sandbox/network/rule.ts";
import { BOUNDS, type Refusal } from "../model/outlet.ts";

/**
 * Connects to the first address that answers. They are tried in turn, a further one as soon as one failed or was silent
 * for a moment (as RFC 8305 has it). Null if none answered in time; rejects never. `addresses` are judged. The socket is paused.
 */
export function dial(
  addresses: readonly string[],
  port: number,
  signal: AbortSignal,
  onread?: OnReadOpts,
): Promise<Socket | null> {
  return new Promise((resolve) => {
    const waiting = [...addresses];
    const open = new Set<Socket>();
    let stagger: NodeJS.Timeout | undefined;
    const finish = (winner: Socket | null): void => {
      clearTimeout(deadline);
      clearTimeout(stagger);
      signal.removeEventListener("abort", abort);
      for (const socket of open) if (socket !== winner) socket.destroy();
      resolve(winner);
    };
    const abort = (): void => finish(null);
    const next = (): void => {
      clearTimeout(stagger);
      const host = waiting.shift();
      if (host === undefined) {
        if (open.size === 0) finish(null);
        return;
      }
      const socket = connect({ host, port, allowHalfOpen: true, noDelay: true, ...(onread && { onread }) });
      open.add(socket);
      const failed = (): void => {
        open.delete(socket);
        next();
      };
      socket.once("error", failed).once("connect", () => {
        socket.off("error", failed);
        // The next owner listens too; an error before that must not be unhandled.
        socket.on("error", () => {});
        finish(socket);
      });
      stagger = setTimeout(next, BOUNDS.nextAddressMs);
    };
    const deadline = setTimeout(abort, BOUNDS.dialTimeoutMs);
    signal.addEventListener("abort", abort);
    if (signal.aborted) abort();
    else next();
  });
}

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
  const allowed = plain.filter((address) => isAllowed(address, rules));
  if (allowed.length > 0) return { ok: true, addresses: interleaved(allowed).slice(0, BOUNDS.addresses) };
  const which = rules.some(({ addresses }) => addresses === undefined) ? "public" : "named in `addresses` of its rule";
  const [kind] = rules.flatMap(({ packages }) => packages?.kind ?? []);
  const way =
    kind === undefined
      ? `If it is meant, write \`{ to: "${to}", addresses: [RANGE] }\` in \`allow\`.`
      : `If it is your registry, name where it is: \`packages: [{ kind: ${kind}, addresses: [RANGE] }]\`, \`addresses\` of \`environment\` or of \`ci.yaml\`, or \`--addresses\`.`;
  return refuse(
    "address",
    `${host} leads to an address that is not ${which}. ${way} \`getent hosts ${host}\` shows the address.`,
  );
}

/** True if an address that was dialled may still be dialled. */
export function addressStillAllowed(address: string, rules: readonly NetworkRule[]): boolean {
  const plain = plainAddress(address);
  return plain !== null && isAllowed(plain, rules);
}

function isAllowed(address: string, rules: readonly NetworkRule[]): boolean {
  return rules.some(
    (rule) => addressAllowed(rule, address) && (rule.addresses !== undefined || !isOwnAddress(address)),
  );
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

/** An address in the one form in which it is judged and dialled; null if it is none. IPv4 within IPv6 becomes IPv4. */
function plainAddress(raw: string): string | null {
  const block = parseBlock(raw);
  if (block === null || block.prefix !== block.bits) return null;
  const isMapped = block.bits === 128 && block.value >> 32n === 0xffffn;
  return addressText(isMapped ? { bits: 32, prefix: 32, value: block.value & 0xffffffffn } : block);
}

/** True for an address of this machine, also a public one: what listens there may trust what comes from this machine. */
export function isOwnAddress(address: string): boolean {
  const all = Object.values(networkInterfaces()).flatMap((each) => each ?? []);
  return all.some((own) => plainAddress(own.address) === address);
}
