import { constants } from "node:fs";
import { open } from "node:fs/promises";
import { join } from "node:path";
import { codeOf } from "../../../platform/errno.ts";
import { type PackageKind, parseTarget } from "../../../sandbox/network/rule.ts";
import type { Env } from "../../../secrets/read-secret.ts";

/** Where package tools of this machine have their settings. */
export interface RegistryMachine {
  /** Corral's own environment. The settings of its user are below `HOME`. */
  readonly env: Env;
  /** Where the settings of the whole system are: `/`. */
  readonly root: string;
}

/** Far more than any settings file has. */
const MAX_BYTES = 1024 * 1024;

/** The text of a settings file; null if there is none, or Corral may not read it, as the tool itself could not. */
export async function settingsAt(path: string | null): Promise<string | null> {
  if (path === null) return null;
  try {
    await using file = await open(path, constants.O_RDONLY | constants.O_NONBLOCK);
    const found = await file.stat();
    return found.isFile() && found.size <= MAX_BYTES ? await file.readFile("utf8") : null;
  } catch (error) {
    if (["ENOENT", "ENOTDIR", "EACCES", "ELOOP"].includes(codeOf(error) ?? "")) return null;
    throw error;
  }
}

/** A place of the whole system. */
export function systemPlace({ root }: RegistryMachine, path: string): string {
  return join(root, path);
}

/** A place of the user; null without a home. */
export function userPlace({ env }: RegistryMachine, path: string): string | null {
  return env.HOME?.startsWith("/") ? join(env.HOME, path) : null;
}

/** A place among the user's settings, as most tools understand the base directory specification. */
export function configPlace(machine: RegistryMachine, path: string): string | null {
  const { XDG_CONFIG_HOME: base } = machine.env;
  return base?.startsWith("/") ? join(base, path) : userPlace(machine, join(".config", path));
}

/** A place that a variable names; null if it does not, or not by an absolute path, which would depend on a directory. */
export function namedPlace(path: string | undefined): string | null {
  return path?.startsWith("/") ? path : null;
}

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
