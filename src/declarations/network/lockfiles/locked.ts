import { isTable, parseToml, type TomlTable } from "../../toml/toml.ts";

/** An index of pip, and where its files are. */
export interface PipIndex {
  readonly registry: string;
  readonly files: { readonly registry: string; readonly path: string };
}

/** Options of a line of their own that name no other place. */
const HARMLESS = /^--(require-hashes|pre|prefer-binary|only-binary|no-binary)\b/;

/**
 * A `requirements.txt` in which each requirement has its hashes. Where the files are is known only to the index, so every path
 * of the files' host is taken, with no content but those of the hashes.
 */
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
  if (names.size > MAX_LOCK_ENTRIES || digests.size > 10 * MAX_LOCK_ENTRIES)
    return refusedFile(`has ${names.size} requirements; at most ${MAX_LOCK_ENTRIES} are taken`);
  const sorted = [...digests].sort();
  return reading.end({
    files: names.size === 0 ? [] : indexes.map(({ files }) => ({ ...files, digests: sorted })),
    indexes: indexes.flatMap(({ registry }) =>
      [...names].map((name) => ({ registry, path: `${new URL(registry).pathname}${name}/` })),
    ),
  });
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
  const parsed = parseToml(text);
  if (!parsed.ok) return refusedFile("is not a lock file of cargo", parsed.line);
  const { package: list = [] } = parsed.table;
  const packages = Array.isArray(list) ? list.filter((one): one is TomlTable => isTable(one)) : [];
  if (packages.length > MAX_LOCK_ENTRIES)
    return refusedFile(`has ${packages.length} entries; at most ${MAX_LOCK_ENTRIES} are taken`);
  const reading = new LockReading();
  const files: LockedFile[] = [];
  const paths = new Set(["/config.json"]);
  for (const { name, version, source, checksum } of packages) {
    // Without a source it is a crate of the project.
    if (source === undefined) continue;
    const fault = (message: string): void =>
      reading.fault(lineAt(text, text.indexOf(`name = "${name}"`)), String(name), message);
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

export interface LockedFile {
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
export interface LockFault {
  /** From 1. */
  readonly line: number;
  /** The entry, as the file names it; empty for the file as a whole. */
  readonly entry: string;
  /** Follows the entry. It repeats no content of the file, which may be any file of this machine. */
  readonly message: string;
}

/** Files and entries beyond these are a mistake, or meant to exhaust Corral. */
export const MAX_LOCK_BYTES = 32 * 1024 * 1024;
export const MAX_LOCK_ENTRIES = 20_000;
/** Paths of indexes are compared one by one. */
const MAX_LOCK_INDEXES = 5000;
/** After this many the others are not reported. */
const MAX_FAULTS = 20;

/** Collects what is wrong, and ends with it or with what is locked. */
export class LockReading {
  readonly #faults: LockFault[] = [];
  #unreported = 0;

  fault(line: number, entry: string, message: string): void {
    if (this.#faults.length < MAX_FAULTS) this.#faults.push({ line, entry: entry.slice(0, 200), message });
    else this.#unreported += 1;
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
export function refusedFile(message: string, line = 1): LockParse {
  return { ok: false, faults: [{ line, entry: "", message }] };
}

const BYTES: Readonly<Record<string, number>> = { sha256: 32, sha384: 48, sha512: 64 };

/** `sha256-BASE64`; null if it is not a digest that can be relied on. `encoding`: that of `value`. */
export function lockedDigest(algorithm: string, value: string, encoding: "hex" | "base64"): string | null {
  const bytes = Buffer.from(value, encoding);
  const isExact = bytes.toString(encoding) === (encoding === "hex" ? value.toLowerCase() : value);
  return isExact && bytes.length === BYTES[algorithm] ? `${algorithm}-${bytes.toString("base64")}` : null;
}

export function lineAt(text: string, offset: number): number {
  return text.slice(0, Math.max(0, offset)).split("\n").length;
}
