import { type PackageKind, parseTarget } from "../../../sandbox/network/rule.ts";

/** A host from which the tools of a kind fetch packages. */
export interface Registry {
  readonly kind: PackageKind;
  /** `https://host/path/`: lower case, with a final slash, without user, query and usual port. */
  readonly url: string;
  /** The only paths that the tools need, as in a rule. Absent: every path. */
  readonly paths?: readonly string[];
  /** As in `PackageSource`. */
  readonly use: readonly string[];
}

/** What the settings of this machine say. */
export interface Registries {
  readonly registries: readonly Registry[];
  /** What the settings name and Corral does not use, each as a sentence. */
  readonly notes: readonly string[];
}

export type RegistryUrl =
  | { readonly ok: true; readonly url: string }
  /** `reason` follows the name of the setting. */
  | { readonly ok: false; readonly reason: string };

/** The canonical form of an address in a settings file. The reason does not repeat it: it may contain a password. */
export function parseRegistryUrl(raw: string): RegistryUrl {
  const parsed = raw.length <= 2000 && URL.canParse(raw) ? new URL(raw) : null;
  if (parsed === null) return { ok: false, reason: "is not an address" };
  const { protocol, host, hostname, pathname } = parsed;
  if (protocol !== "https:" && protocol !== "http:")
    return { ok: false, reason: `is a ${protocol.slice(0, 20)} address, which is not on the network` };
  const path = `${pathname.replace(/\/+$/, "")}/`;
  // A path that could mean two things, or end the line of a settings file.
  if (!/^[A-Za-z0-9._~!$&()+,;=@/-]+$/.test(path) || path.includes("//") || /\/\.{1,2}\//.test(path))
    return { ok: false, reason: "has a path that Corral does not take" };
  if (!parseTarget(`${hostname}:443`).ok) return { ok: false, reason: "has a host that Corral does not take" };
  return { ok: true, url: `${protocol}//${host}${path}` };
}

/** True if the address names a user or a password, which Corral does not pass on. */
export function hasCredentials(raw: string): boolean {
  if (!URL.canParse(raw)) return false;
  const { username, password } = new URL(raw);
  return username !== "" || password !== "";
}

/** `host:port` of a registry. */
export function targetOf(url: string): string {
  const { protocol, hostname, port } = new URL(url);
  return `${hostname}:${port === "" ? (protocol === "https:" ? 443 : 80) : port}`;
}

/** The same place as the cell reaches it: in plain HTTP. */
export function insideUrl(url: string): string {
  return url.replace(/^https:/, "http:");
}

/** `/path/**` for a registry below a path; absent for one that has the whole host. */
export function pathsBelow(url: string): { readonly paths?: readonly string[] } {
  const { pathname } = new URL(url);
  return pathname === "/" ? {} : { paths: [`${pathname}**`] };
}
