import { constants } from "node:fs";
import { open } from "node:fs/promises";
import { basename, resolve } from "node:path";
import { jsonFaultOffset, parseJson } from "../../json/parse-json.ts";
import { hasCode } from "../../platform/errno.ts";
import type { Artifact, PackageKind } from "../../sandbox/network/rule.ts";
import { fileFault, followed } from "../place/host-place.ts";
import {
  isTable,
  PUBLIC_CRATES,
  PUBLIC_INDEX,
  PUBLIC_PIP_INDEX,
  parseRegistryUrl,
  parseToml,
  pipFilesOf,
  type Registry,
  type TomlTable,
} from "./registries/registry.ts";

/** An index of pip, and where its files are. */
export interface PipIndex {
  readonly registry: string;
  readonly files: { readonly registry: string; readonly path: string };
}

/** Options of a line of their own that name no other place. */
const HARMLESS = /^--(require-hashes|pre|prefer-binary|only-binary|no-binary)\b/;

/** A `requirements.txt` in which each requirement has its hashes. */
export function parseRequirements(text: string, indexes: readonly PipIndex[]): LockParse {
  const reading = new LockReading();
  const names = new Set<string>();
  const digests = new Set<string>();
  for (const { line, content } of requirementsOf(text)) {
    if (content.startsWith("-")) {
      if (!HARMLESS.test(content))
        reading.fault(line, content.split(/[\s=]/)[0] ?? "", "is an option that Corral does not take in a lock file");
      continue;
    }
    const [, name, rest = ""] = /^([A-Za-z0-9][A-Za-z0-9._-]*)\s*(.*)$/s.exec(content) ?? [];
    if (name === undefined) {
      reading.fault(line, "", "is not a requirement: a name, a version and hashes");
      continue;
    }
    const requirement = rest.replace(/\s--hash.*$/s, "").replace(/;.*$/s, "");
    if (/@|:\/\//.test(requirement)) reading.fault(line, name, "names a place of its own; only the index is used");
    const hashes = [...rest.matchAll(/\s--hash[=\s]\s*([a-z0-9]+):([0-9A-Fa-f]+)/g)];
    const known = hashes.flatMap(([, algorithm = "", hex = ""]) => lockedDigest(algorithm, hex, "hex") ?? []);
    if (known.length === 0) reading.fault(line, name, "has no `--hash` of sha256, sha384 or sha512");
    for (const digest of known) digests.add(digest);
    names.add(name.toLowerCase().replace(/[._-]+/g, "-"));
  }
  return ofIndexes(reading, names, digests, indexes);
}

/** Only an index knows where its files are: every path of the files' host is taken, with no content but these. */
function ofIndexes(
  reading: LockReading,
  names: ReadonlySet<string>,
  digests: ReadonlySet<string>,
  indexes: readonly PipIndex[],
): LockParse {
  if (names.size > MAX_LOCK_ENTRIES || digests.size > 10 * MAX_LOCK_ENTRIES)
    return refusedFile(`has ${names.size} packages; at most ${MAX_LOCK_ENTRIES} are taken`);
  const sorted = [...digests].sort();
  return reading.end({
    files: digests.size === 0 ? [] : indexes.map(({ files }) => ({ ...files, digests: sorted })),
    indexes: indexes.flatMap(({ registry }) =>
      [...names].map((name) => ({ registry, path: `${new URL(registry).pathname}${name}/` })),
    ),
  });
}

/**
 * A `uv.lock`. What it names is fetched from the indexes of pip, also if it was written for the public one; of its addresses only the index counts.
 * A source would have to be built, which runs it beside a network: its hash is not taken.
 */
export function parseUvLock(text: string, indexes: readonly PipIndex[]): LockParse {
  const read = lockedPackages(text, "uv");
  if (!read.ok) return read;
  const reading = new LockReading();
  const known = [PUBLIC_PIP_INDEX, ...indexes.map(({ registry }) => registry)];
  const names = new Set<string>();
  const digests = new Set<string>();
  for (const { name, source, wheels = [] } of read.packages) {
    const fault = (message: string): void => reading.fault({ text, start: `name = "${name}"` }, String(name), message);
    const { registry, virtual, editable, directory, ...others } = isTable(source) ? source : {};
    // A folder of the repository.
    if (virtual ?? editable ?? directory) continue;
    const index = typeof registry === "string" ? parseRegistryUrl(registry) : null;
    if (typeof name !== "string" || !/^[a-z0-9](-?[a-z0-9])*$/.test(name))
      reading.fault(1, "", "has a package without a name");
    else if (index === null)
      fault(`comes from ${Object.keys(others)[0] ?? "no place"}, and only indexes are reached for a lock file`);
    else if (!index.ok) fault(`has an index that ${index.reason}`);
    else if (!known.includes(index.url))
      fault(
        `is at ${new URL(index.url).host}, which is not an index of this machine's pip; no other host is reached for a lock file`,
      );
    else {
      const hashes = (Array.isArray(wheels) ? wheels : []).map((one) =>
        /^sha256:(.*)$/.exec(isTable(one) ? String(one.hash) : ""),
      );
      const all = hashes.map((hash) => lockedDigest("sha256", hash?.[1] ?? "", "hex"));
      if (all.includes(null)) fault("has a wheel without a hash of sha256");
      for (const digest of all) if (digest !== null) digests.add(digest);
      names.add(name);
    }
  }
  return ofIndexes(reading, names, digests, indexes);
}

/** Lines without comments, of which those that end in a backslash continue in the next one. */
function* requirementsOf(text: string): Generator<{ readonly line: number; readonly content: string }> {
  let held: { line: number; content: string } | null = null;
  for (const [index, raw] of text.split(/\r?\n/).entries()) {
    const goesOn = raw.endsWith("\\");
    const content = (goesOn ? raw.slice(0, -1) : raw).replace(/(^|\s)#.*$/, "");
    held = held === null ? { line: index + 1, content } : { line: held.line, content: `${held.content} ${content}` };
    if (goesOn) continue;
    if (held.content.trim() !== "") yield { line: held.line, content: held.content.trim() };
    held = null;
  }
  if (held !== null && held.content.trim() !== "") yield { line: held.line, content: held.content.trim() };
}

/** The public registry: the addresses of its index and of its files. */
export interface CratesRegistry {
  readonly index: string;
  readonly crates: string;
}

/** How lock files name crates.io. */
const CRATES_IO = ["registry+https://github.com/rust-lang/crates.io-index", "sparse+https://index.crates.io/"];

/** A `Cargo.lock` with a checksum for every crate, as cargo has written it since 2020. */
export function parseCargoLock(text: string, { index, crates }: CratesRegistry): LockParse {
  const read = lockedPackages(text, "cargo");
  if (!read.ok) return read;
  const reading = new LockReading();
  const files: LockedFile[] = [];
  const paths = new Set(["/config.json"]);
  for (const { name, version, source, checksum } of read.packages) {
    // Without a source it is a crate of the project.
    if (source === undefined) continue;
    const fault = (message: string): void => reading.fault({ text, start: `name = "${name}"` }, String(name), message);
    if (typeof name !== "string" || !/^[A-Za-z0-9_-]{1,64}$/.test(name))
      reading.fault(1, "", "has a crate without a name");
    else if (typeof version !== "string" || !/^[0-9A-Za-z.+-]{1,100}$/.test(version)) fault("has no version");
    else if (typeof source !== "string" || !CRATES_IO.includes(source))
      fault("does not come from crates.io; no other place is reached for a lock file");
    else {
      const digest = typeof checksum === "string" ? lockedDigest("sha256", checksum, "hex") : null;
      if (digest === null) fault("has no checksum of sha256; `cargo update` writes it");
      else {
        paths.add(indexPath(name));
        // The index names the first of them; tools other than cargo use the second.
        for (const path of [`/crates/${name}/${version}/download`, `/crates/${name}/${name}-${version}.crate`])
          files.push({ registry: crates, path, digests: [digest] });
      }
    }
  }
  return reading.end({ files, indexes: [...paths].map((path) => ({ registry: index, path })) });
}

/** Its reader is slow: this takes seconds. */
const MAX_TOML_LENGTH = 8 * 1024 * 1024;

type LockedPackages =
  | { readonly ok: true; readonly packages: readonly TomlTable[] }
  | Extract<LockParse, { ok: false }>;

/** The entries of a lock file whose form cargo and uv share. */
function lockedPackages(text: string, tool: string): LockedPackages {
  if (text.length > MAX_TOML_LENGTH) return refusedFile(`is longer than ${MAX_TOML_LENGTH} characters`);
  const parsed = parseToml(text);
  if (!parsed.ok) return refusedFile(`is not a lock file of ${tool}`, parsed.line);
  const { package: list = [] } = parsed.table;
  const packages = Array.isArray(list) ? list.filter((one): one is TomlTable => isTable(one)) : [];
  if (packages.length > MAX_LOCK_ENTRIES)
    return refusedFile(`has ${packages.length} entries; at most ${MAX_LOCK_ENTRIES} are taken`);
  return { ok: true, packages };
}

/** `/se/rd/serde`: the folders of a sparse index. */
function indexPath(raw: string): string {
  const name = raw.toLowerCase();
  if (name.length < 3) return `/${name.length}/${name}`;
  if (name.length === 3) return `/3/${name[0]}/${name}`;
  return `/${name.slice(0, 2)}/${name.slice(2, 4)}/${name}`;
}

/** What a lock file names. */
export interface Locked {
  /** Files, by the registry that has them, and with all contents that they may have. */
  readonly files: readonly LockedFile[];
  /** What a tool reads to find the files. Only these paths, and their contents are not known. */
  readonly indexes: readonly { readonly registry: string; readonly path: string }[];
}

interface LockedFile {
  /** The `url` of its registry. */
  readonly registry: string;
  /** As in `Artifact`. */
  readonly path: string;
  readonly digests: readonly string[];
}

export type LockParse =
  | { readonly ok: true; readonly locked: Locked }
  | { readonly ok: false; readonly faults: readonly LockFault[] };

/** What is wrong with one entry. */
interface LockFault {
  /** From 1. */
  readonly line: number;
  /** The entry, as the file names it; empty for the file as a whole. */
  readonly entry: string;
  /** Follows the entry. It repeats no content of the file, which may be any file of this machine. */
  readonly message: string;
}

/** Files and entries beyond these are a mistake, or meant to exhaust Corral. */
export const MAX_LOCK_BYTES = 32 * 1024 * 1024;
const MAX_LOCK_ENTRIES = 20_000;
/** Paths of indexes are compared one by one. */
const MAX_LOCK_INDEXES = 5000;
/** After this many the others are not reported. */
const MAX_FAULTS = 20;

/** Collects what is wrong, and ends with it or with what is locked. */
class LockReading {
  readonly #faults: LockFault[] = [];
  #unreported = 0;

  /** `line`: a number, or how the entry begins in the text, which is looked for only if this is reported. */
  fault(line: number | { readonly text: string; readonly start: string }, entry: string, message: string): void {
    if (this.#faults.length < MAX_FAULTS) {
      const at = typeof line === "number" ? line : lineAt(line.text, line.text.indexOf(line.start));
      this.#faults.push({ line: at, entry: entry.slice(0, 200), message });
    } else this.#unreported += 1;
  }

  end(locked: Locked): LockParse {
    if (locked.indexes.length > MAX_LOCK_INDEXES)
      this.fault(1, "", `needs ${locked.indexes.length} indexes of packages; at most ${MAX_LOCK_INDEXES} are taken`);
    if (this.#unreported > 0)
      this.#faults.push({ line: 1, entry: "", message: `has ${this.#unreported} further entries that are refused` });
    return this.#faults.length > 0 ? { ok: false, faults: this.#faults } : { ok: true, locked };
  }
}

/** A file that is refused as a whole. */
function refusedFile(message: string, line = 1): Extract<LockParse, { ok: false }> {
  return { ok: false, faults: [{ line, entry: "", message }] };
}

const BYTES: Readonly<Record<string, number>> = { sha256: 32, sha384: 48, sha512: 64 };

/** `sha256-BASE64`; null if it is not a digest that can be relied on. `encoding`: that of `value`. */
function lockedDigest(algorithm: string, value: string, encoding: "hex" | "base64"): string | null {
  const bytes = Buffer.from(value, encoding);
  const isExact = bytes.toString(encoding) === (encoding === "hex" ? value.toLowerCase() : value);
  return isExact && bytes.length === BYTES[algorithm] ? `${algorithm}-${bytes.toString("base64")}` : null;
}

export function lineAt(text: string, offset: number): number {
  return text.slice(0, Math.max(0, offset)).split("\n").length;
}

/** One lock file that a declaration names. */
export interface LockSource {
  readonly index: number;
  /** As written, relative to the project. */
  readonly path: string;
  readonly kind: PackageKind;
}

/** What one registry may be asked for: either only these files, or only these paths. */
export interface LockedRegistry {
  readonly registry: Registry;
  readonly artifacts?: readonly Artifact[];
  readonly paths?: readonly string[];
}

export interface LockRules {
  readonly rules: readonly LockedRegistry[];
  readonly faults: readonly { readonly index: number; readonly fault: string }[];
}

/** Which tool writes a file of this name; null: Corral does not know it. */
export function lockKind(path: string): PackageKind | null {
  const name = basename(path);
  if (name === "package-lock.json" || name === "npm-shrinkwrap.json") return "npm";
  if (name === "Cargo.lock") return "crates";
  if (name === "uv.lock") return "pypi";
  return /^requirements([._-][\w.-]*)?\.txt$/.test(name) ? "pypi" : null;
}

/** Where a lock file is on the host, and the links on the way to it. Throws if it does not exist. */
export async function lockPlace(projectDir: string, path: string) {
  return await followed(resolve(projectDir, path));
}

/**
 * Reads lock files of one kind. They are the project's own files: no worker may write them (host-place.ts), so what is read
 * here is what the owner of the project put there.
 */
export async function lockRules(
  sources: readonly LockSource[],
  registries: readonly Registry[],
  projectDir: string,
): Promise<LockRules> {
  const faults: { index: number; fault: string }[] = [];
  const all: Locked[] = [];
  for (const { index, path, kind } of sources) {
    const text = await lockText(projectDir, path);
    const parsed = text.ok ? parserOf(kind, registries, path)(text.text) : refusedFile(text.fault);
    if (parsed.ok) all.push(parsed.locked);
    else faults.push(...parsed.faults.map((fault) => ({ index, fault: inWords(path, fault) })));
  }
  const rules = registries.flatMap((registry) => {
    const artifacts = all.flatMap(({ files }) => files).filter((file) => file.registry === registry.url);
    const paths = all.flatMap(({ indexes }) => indexes).filter((index) => index.registry === registry.url);
    return [
      ...(artifacts.length === 0 ? [] : [{ registry, artifacts: byPath(artifacts) }]),
      ...(paths.length === 0 ? [] : [{ registry, paths: [...new Set(paths.map(({ path }) => path))].sort() }]),
    ];
  });
  return { rules, faults };
}

function parserOf(kind: PackageKind, registries: readonly Registry[], path: string): (text: string) => LockParse {
  if (kind === "npm") {
    const scoped = registries.flatMap(({ url, use }) => use.map((word) => [word.split(" "), url] as const));
    const main = scoped.find(([words]) => words.length === 1)?.[1] ?? "";
    const scopes = new Map(
      scoped.flatMap(([[scope = "", inside], url]) => (inside === undefined ? [] : [[scope, url]])),
    );
    return (text) => parseNpmLock(text, { main, scopes });
  }
  if (kind === "pypi") {
    const parse = basename(path) === "uv.lock" ? parseUvLock : parseRequirements;
    return (text) => parse(text, registries.flatMap(pipFilesOf));
  }
  if (!registries.some(({ url }) => url === PUBLIC_INDEX))
    return () => refusedFile("can only be used with crates.io itself, and cargo replaces it on this machine");
  return (text) => parseCargoLock(text, { index: PUBLIC_INDEX, crates: PUBLIC_CRATES });
}

/** The same file in two lock files has the contents that both name. */
function byPath(files: readonly Artifact[]): Artifact[] {
  const digests = new Map<string, Set<string>>();
  for (const { path, digests: some } of files) digests.set(path, new Set([...(digests.get(path) ?? []), ...some]));
  return [...digests].sort(([a], [b]) => (a < b ? -1 : 1)).map(([path, all]) => ({ path, digests: [...all].sort() }));
}

function inWords(path: string, { line, entry, message }: LockFault): string {
  return `${path}:${line}: ${entry === "" ? "the file" : `\`${entry}\``} ${message}`;
}

type LockText = { readonly ok: true; readonly text: string } | { readonly ok: false; readonly fault: string };

async function lockText(projectDir: string, path: string): Promise<LockText> {
  try {
    const { host } = await lockPlace(projectDir, path);
    await using file = await open(host, constants.O_RDONLY | constants.O_NOFOLLOW | constants.O_NONBLOCK);
    const found = await file.stat();
    if (!found.isFile()) return { ok: false, fault: "is not a regular file" };
    if (found.size > MAX_LOCK_BYTES) return { ok: false, fault: `is larger than ${MAX_LOCK_BYTES} bytes` };
    return { ok: true, text: await file.readFile("utf8") };
  } catch (error) {
    if (hasCode(error, "ENXIO")) return { ok: false, fault: "is not a regular file" };
    return { ok: false, fault: fileFault(error) };
  }
}

interface NpmRegistries {
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
    if (typeof read === "string") reading.fault({ text, start: `${JSON.stringify(key)}:` }, key, read);
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
    const place =
      typeof resolved === "string" ? registryPlace(resolved, registries) : "has a `resolved` that is no text";
    return typeof place === "string" ? place : { file: { ...place, digests }, index: null };
  }
  if (typeof version !== "string" || !/^[0-9A-Za-z.+-]{1,256}$/.test(version)) return "has no `version`";
  const scope = name.startsWith("@") ? name.slice(0, name.indexOf("/")) : null;
  const registry = (scope === null ? undefined : registries.scopes.get(scope)) ?? registries.main;
  const base = `${new URL(registry).pathname}${name}`;
  const path = `${base}/-/${name.slice(name.indexOf("/") + 1)}-${version}.tgz`;
  return { file: { registry, path, digests }, index: { registry, path: base } };
}

function registryPlace(resolved: string, registries: NpmRegistries): { registry: string; path: string } | string {
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
