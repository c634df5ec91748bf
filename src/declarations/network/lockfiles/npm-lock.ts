import { jsonFaultOffset, parseJson } from "../../../json/parse-json.ts";
import {
  type LockedFile,
  type LockParse,
  LockReading,
  lineAt,
  lockedDigest,
  MAX_LOCK_ENTRIES,
  refusedFile,
} from "./locked.ts";

/** The registries of npm. */
export interface NpmRegistries {
  readonly main: string;
  /** By scope, with its `@`. */
  readonly scopes: ReadonlyMap<string, string>;
}

/** In lock files this address means the registry that npm is configured for. */
const ANY_REGISTRY = "https://registry.npmjs.org/";

/** Each entry has about ten values, and some have many engines, licences and dependencies. */
const MAX_VALUES = 100 * MAX_LOCK_ENTRIES;

interface Entry {
  readonly name?: unknown;
  readonly version?: unknown;
  readonly resolved?: unknown;
  readonly integrity?: unknown;
  readonly link?: unknown;
  readonly inBundle?: unknown;
  readonly optional?: unknown;
}

/**
 * A `package-lock.json` or `npm-shrinkwrap.json` of version 2 or 3. An entry without `resolved` has the address that npm would
 * choose; npm then asks the registry for the package, so its index is needed too.
 */
export function parseNpmLock(text: string, registries: NpmRegistries): LockParse {
  const parsed = parseJson(text, MAX_VALUES);
  if (!parsed.ok) return refusedFile("is not a lock file of npm: it is not JSON", faultLine(text, parsed.problem));
  const { lockfileVersion: version, packages } = asRecord(parsed.value);
  if (version !== 2 && version !== 3)
    return refusedFile("must be a lock file of npm of version 2 or 3; `npm install` of npm 7 or later writes one");
  const entries = Object.entries(asRecord(packages)).filter(([key, entry]) => isFetched(key, asRecord(entry)));
  if (entries.length > MAX_LOCK_ENTRIES)
    return refusedFile(`has ${entries.length} entries; at most ${MAX_LOCK_ENTRIES} are taken`);
  const reading = new LockReading();
  const files: LockedFile[] = [];
  const indexes: { registry: string; path: string }[] = [];
  for (const [key, raw] of entries) {
    const entry = asRecord(raw) as Entry;
    const read = readEntry(key, entry, registries);
    if (typeof read === "string") reading.fault(lineAt(text, text.indexOf(`${JSON.stringify(key)}:`)), key, read);
    else {
      files.push(read.file);
      if (read.index !== null) indexes.push(read.index);
    }
  }
  return reading.end({ files, indexes });
}

/**
 * Folders of the project, links to them, and what comes inside of another package are not fetched. npm writes no digest for an
 * optional package that it did not install, as one for another system: that one is not reached.
 */
function isFetched(key: string, { link, inBundle, resolved, optional, integrity }: Entry): boolean {
  if (!/(^|\/)node_modules\//.test(key) || link === true || inBundle === true) return false;
  if (optional === true && integrity === undefined) return false;
  return !(typeof resolved === "string" && resolved.startsWith("file:"));
}

interface ReadEntry {
  readonly file: LockedFile;
  readonly index: { readonly registry: string; readonly path: string } | null;
}

/** What the entry means, or what is wrong with it. */
function readEntry(key: string, entry: Entry, registries: NpmRegistries): ReadEntry | string {
  const name = typeof entry.name === "string" ? entry.name : key.slice(key.lastIndexOf("node_modules/") + 13);
  if (!/^(@[A-Za-z0-9~._-]+\/)?[A-Za-z0-9~._-]+$/.test(name) || name.length > 214)
    return "has a name that no package has";
  const digests = digestsOf(entry.integrity);
  if (typeof digests === "string") return digests;
  const { resolved, version } = entry;
  if (resolved !== undefined) {
    const place = typeof resolved === "string" ? placeOf(resolved, registries) : "has a `resolved` that is no text";
    return typeof place === "string" ? place : { file: { ...place, digests }, index: null };
  }
  if (typeof version !== "string" || !/^[0-9A-Za-z.+-]{1,256}$/.test(version)) return "has no `version`";
  const scope = name.startsWith("@") ? name.slice(0, name.indexOf("/")) : null;
  const registry = (scope === null ? undefined : registries.scopes.get(scope)) ?? registries.main;
  const base = `${new URL(registry).pathname}${name}`;
  const path = `${base}/-/${name.slice(name.indexOf("/") + 1)}-${version}.tgz`;
  return { file: { registry, path, digests }, index: { registry, path: base } };
}

function placeOf(resolved: string, registries: NpmRegistries): { registry: string; path: string } | string {
  if (/^git|^github:|\.git(#|$)/.test(resolved))
    return "comes from git, and a lock file has no digest for it; publish it in a registry, or allow the host of git";
  const url = URL.canParse(resolved) ? new URL(resolved) : null;
  if (url === null || !/^https?:$/.test(url.protocol)) return "has a `resolved` that is not an address of a registry";
  if (url.username !== "" || url.password !== "") return "has a `resolved` with a user or a password";
  const { main, scopes } = registries;
  const own = [...scopes.values(), main].find((registry) => url.href.startsWith(registry));
  if (own !== undefined) return { registry: own, path: url.pathname };
  const host = url.host.slice(0, 100);
  if (!url.href.startsWith(ANY_REGISTRY))
    return `is at ${host}, which is not a registry of this machine's npm; no other host is reached for a lock file`;
  return { registry: main, path: new URL(main).pathname.replace(/\/$/, "") + url.pathname };
}

/** Those of the strongest algorithm, as npm checks them; or what is wrong. */
function digestsOf(integrity: unknown): string[] | string {
  if (typeof integrity !== "string") return "has no `integrity`, so its content cannot be checked";
  const hashes = integrity.split(/\s+/).map((hash) => /^(sha\d+)-([A-Za-z0-9+/]+={0,2})(\?.*)?$/.exec(hash));
  for (const algorithm of ["sha512", "sha384", "sha256"]) {
    const digests = hashes.flatMap((hash) =>
      hash?.[1] === algorithm ? (lockedDigest(algorithm, hash[2] ?? "", "base64") ?? []) : [],
    );
    if (digests.length > 0) return digests;
  }
  return "has an `integrity` without sha512, sha384 or sha256; sha1 does not protect its content";
}

function asRecord(value: unknown): Readonly<Record<string, unknown>> {
  return typeof value === "object" && value !== null && !Array.isArray(value) ? { ...value } : {};
}

function faultLine(text: string, problem: string): number {
  return lineAt(text, jsonFaultOffset(text, problem));
}
