import { constants } from "node:fs";
import { open } from "node:fs/promises";
import { basename, resolve } from "node:path";
import { hasCode } from "../../platform/errno.ts";
import type { Artifact, PackageKind } from "../../sandbox/network/rule.ts";
import { fileFault, followed } from "../place/host-place.ts";
import {
  type Locked,
  type LockFault,
  type LockParse,
  MAX_LOCK_BYTES,
  parseCargoLock,
  parseRequirements,
  refusedFile,
} from "./lockfiles/locked.ts";
import { parseNpmLock } from "./lockfiles/npm-lock.ts";
import { PUBLIC_CRATES, PUBLIC_INDEX } from "./registries/cargo.ts";
import { pipFilesOf } from "./registries/pip.ts";
import type { Registry } from "./registries/registry.ts";

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
  return /^requirements([._-][\w.-]*)?\.txt$/.test(name) ? "pypi" : null;
}

/** Where a lock file is on the host, and the links on the way to it. Throws if it does not exist. */
export async function lockPlace(projectDir: string, path: string) {
  return await followed(resolve(projectDir, path));
}

/**
 * Reads lock files of one kind. They are the project's own files: no worker may write them (own-files.ts), so what is read
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
    const parsed = text.ok ? parserOf(kind, registries)(text.text) : refusedFile(text.fault);
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

function parserOf(kind: PackageKind, registries: readonly Registry[]): (text: string) => LockParse {
  if (kind === "npm") {
    const scoped = registries.flatMap(({ url, use }) => use.map((word) => [word.split(" "), url] as const));
    const main = scoped.find(([words]) => words.length === 1)?.[1] ?? "";
    const scopes = new Map(
      scoped.flatMap(([[scope = "", inside], url]) => (inside === undefined ? [] : [[scope, url]])),
    );
    return (text) => parseNpmLock(text, { main, scopes });
  }
  if (kind === "pypi") return (text) => parseRequirements(text, registries.flatMap(pipFilesOf));
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
