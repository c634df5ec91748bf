import type { Network, NetworkRule, PackageKind } from "../../sandbox/network/rule.ts";
import type { KeyPath } from "../yaml/document.ts";
import { type LockSource, lockKind, lockRules } from "./lock-rules.ts";
import type { RegistryMap } from "./registries/read-registries.ts";
import { type Registries, type Registry, targetOf } from "./registries/registry.ts";
import { type PackageTerms, placeFaults, type RawNetwork } from "./rule-terms.ts";

export interface NetworkContext {
  readonly projectDir: string;
  /** Those of the presets that the network uses. */
  readonly registries: RegistryMap;
}

/** What is wrong with one line of a network, at its place below `network`. */
export interface NetworkFault {
  readonly at: KeyPath;
  readonly fault: string;
}

export type NetworkResolution =
  | { readonly ok: true; readonly network: Network }
  | { readonly ok: false; readonly faults: readonly NetworkFault[] };

/** What a network that consists of presets and lock files alone may send: enough for the requests of some 7,000 files. */
const PRESET_UPLOAD_BYTES = 4 * 1024 * 1024;

/** The I/O step between a declared network and its rules. Reports all faults together. */
export async function resolveNetwork(raw: RawNetwork, context: NetworkContext): Promise<NetworkResolution> {
  if (typeof raw === "boolean") return { ok: true, network: raw };
  const { allow, limits, dynamic } = raw;
  const { rules, faults } = await packageRules(raw, context);
  if (faults.length > 0)
    return { ok: false, faults: faults.map(({ in: part, index, fault }) => ({ at: [part, index], fault })) };
  // Among the rules as written the shape was judged already; a registry may be where one of them, or another registry, is.
  const clashes = placeFaults([...allow, ...rules]).filter(({ index }) => index >= allow.length);
  const at: KeyPath = [raw.packages === undefined ? "lockfiles" : "packages"];
  if (clashes.length > 0) return { ok: false, faults: clashes.map(({ fault }) => ({ at, fault })) };
  const usual = allow.length === 0 && rules.length > 0 ? { uploadBytes: PRESET_UPLOAD_BYTES } : undefined;
  const bounded = usual || limits ? { limits: { ...usual, ...limits } } : {};
  return { ok: true, network: { allow: [...allow, ...rules], ...bounded, ...(dynamic && { dynamic }) } };
}

/** `index` is that of the preset or of the lock file. */
export interface PackageFault {
  readonly in: "packages" | "lockfiles";
  readonly index: number;
  readonly fault: string;
}

export interface PackageRules {
  readonly rules: readonly NetworkRule[];
  readonly faults: readonly PackageFault[];
}

/** Reading is all that a preset allows. */
const METHODS: readonly string[] = ["GET", "HEAD"];

/** The presets that these terms use: those that they name, and those of their lock files. */
export function kindsOf({ packages = [], lockfiles = [] }: PackageTerms): PackageKind[] {
  const locked = lockfiles.map(lockKind).filter((kind) => kind !== null);
  return [...new Set([...packages.map(({ kind }) => kind), ...locked])];
}

/** What the settings of this machine name for the presets of these terms, and Corral does not use: each as a sentence. */
export function skippedRegistries(terms: PackageTerms, registries: RegistryMap): string[] {
  return kindsOf(terms).flatMap((kind) => notesOf(registries.get(kind)));
}

/** A preset without any registry is refused, and the refusal has the notes. */
export function notesOf(found: Registries | undefined): readonly string[] {
  return found === undefined || found.registries.length === 0 ? [] : [...new Set(found.notes)];
}

/**
 * The rules for presets and lock files. A lock file bounds the preset of its kind: only its files are reached, whether the
 * preset is named or not.
 */
export async function packageRules(
  terms: PackageTerms,
  context: { readonly projectDir: string; readonly registries: RegistryMap },
): Promise<PackageRules> {
  const { packages = [], lockfiles = [] } = terms;
  const faults: PackageFault[] = [];
  const sources: LockSource[] = [];
  for (const [index, path] of lockfiles.entries()) {
    const kind = lockKind(path);
    const fault =
      "is not a lock file that Corral knows: package-lock.json, npm-shrinkwrap.json, requirements.txt, uv.lock, Cargo.lock";
    if (kind === null) faults.push({ in: "lockfiles", index, fault });
    else sources.push({ index, path, kind });
  }
  const rules: NetworkRule[] = [];
  for (const kind of kindsOf(terms)) {
    const index = packages.findIndex((preset) => preset.kind === kind);
    const registries = context.registries.get(kind)?.registries ?? [];
    const asRule = (registry: Registry): NetworkRule => ruleOf(registry, packages[index]?.addresses);
    if (registries.length === 0) {
      const notes = context.registries.get(kind)?.notes ?? [];
      const fault = `\`${kind}\` has no registry on this machine. ${notes.join(" ")}`.trim();
      faults.push(index < 0 ? { in: "lockfiles", index: 0, fault } : { in: "packages", index, fault });
      continue;
    }
    const locks = sources.filter((source) => source.kind === kind);
    if (locks.length === 0) rules.push(...registries.map(asRule));
    else {
      const locked = await lockRules(locks, registries, context.projectDir);
      rules.push(...locked.rules.map(({ registry, ...bounds }) => ({ ...withoutPaths(asRule(registry)), ...bounds })));
      faults.push(...locked.faults.map((fault) => ({ in: "lockfiles" as const, ...fault })));
    }
  }
  return { rules, faults };
}

function ruleOf({ kind, url, paths, use }: Registry, addresses?: readonly string[]): NetworkRule {
  const to = targetOf(url);
  return {
    to,
    methods: METHODS,
    ...(paths && { paths }),
    ...(addresses && { addresses }),
    ...(url.startsWith("http:") && !to.endsWith(":80") && { tls: false }),
    packages: { kind, use },
  };
}

function withoutPaths({ paths: _, ...rule }: NetworkRule): NetworkRule {
  return rule;
}
