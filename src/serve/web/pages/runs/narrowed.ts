import type { Held } from "../../api/shapes.ts";

/** `kept`: as its caller had it, or more of what it has itself; `narrowed`: less of it; `lost`: its caller had it, and it has not. */
export type Change = "kept" | "narrowed" | "lost";

export interface ComparedMount {
  readonly path: string;
  readonly mode: "ro" | "rw";
  readonly change: Change;
  /** For what is narrowed: what its caller has instead, as `/docs rw`. */
  readonly instead?: string;
}

export interface ComparedName {
  readonly name: string;
  readonly change: Change;
}

export interface ComparedLimit {
  readonly name: string;
  readonly amount: number;
  /** What its caller may use; null for a root, or if it is not known. */
  readonly callers: number | null;
}

export interface Compared {
  readonly mounts: readonly ComparedMount[];
  /** `null`: not recorded. */
  readonly network: "open" | readonly ComparedName[] | null;
  readonly isNetworkNarrowed: boolean;
  readonly secrets: readonly ComparedName[];
  readonly limits: readonly ComparedLimit[];
}

interface Side {
  readonly held: Held | null;
  readonly limits: Readonly<Record<string, number>> | null;
}

/** What a call has, beside what its caller had. `caller` null: it is a root. Null: it has not started. */
export function compared(call: Side, caller: Side | null): Compared | null {
  if (call.held === null) return null;
  const above = caller?.held ?? null;
  const { network } = call.held;
  return {
    mounts: comparedMounts(call.held.mounts, above?.mounts ?? null),
    network: network === null || network === "open" ? network : comparedNames(network, namesOf(above?.network ?? null)),
    isNetworkNarrowed: isLess(network, above?.network ?? null),
    secrets: comparedNames(call.held.secrets, above?.secrets ?? []),
    limits: comparedLimits(call.limits, caller?.limits ?? null),
  };
}

function comparedMounts(own: Held["mounts"], above: Held["mounts"] | null): ComparedMount[] {
  if (above === null) return own.map((mount) => ({ ...mount, change: "kept" }));
  const kept = own.map((mount): ComparedMount => {
    const source = nearest(above, mount.path);
    const isLess =
      source !== undefined && (source.path !== mount.path || (source.mode === "rw" && mount.mode === "ro"));
    return isLess
      ? { ...mount, change: "narrowed", instead: `${source.path} ${source.mode}` }
      : { ...mount, change: "kept" };
  });
  const lost = above.filter(({ path }) => !own.some((mount) => covers(path, mount.path) || covers(mount.path, path)));
  return [...kept, ...lost.map((mount): ComparedMount => ({ ...mount, change: "lost" }))];
}

/** The mount of the caller that shows this path. */
function nearest(above: Held["mounts"], path: string): Held["mounts"][number] | undefined {
  return above.filter((mount) => covers(mount.path, path)).toSorted((a, b) => b.path.length - a.path.length)[0];
}

function covers(above: string, path: string): boolean {
  return above === path || above === "/" || path.startsWith(`${above}/`);
}

function comparedNames(own: readonly string[], above: readonly string[]): ComparedName[] {
  const lost = above.filter((name) => !own.includes(name));
  return [
    ...own.map((name): ComparedName => ({ name, change: "kept" })),
    ...lost.map((name): ComparedName => ({ name, change: "lost" })),
  ];
}

function namesOf(network: Held["network"]): readonly string[] {
  return network === null || network === "open" ? [] : network;
}

function isLess(own: Held["network"], above: Held["network"]): boolean {
  if (own === null || above === null || own === "open") return false;
  return above === "open" || above.some((name) => !own.includes(name));
}

function comparedLimits(own: Side["limits"], above: Side["limits"]): ComparedLimit[] {
  return Object.entries(own ?? {})
    .filter(([name]) => name in LIMIT_NAMES)
    .map(([name, amount]) => ({ name, amount, callers: above?.[name] ?? null }));
}

/** In the words of worker files. */
export const LIMIT_NAMES: Readonly<Record<string, string>> = {
  timeoutMs: "timeout",
  memoryBytes: "memory",
  cpus: "cpus",
  pids: "pids",
  outputBytes: "output",
  diskBytes: "disk",
};

/** Anything was taken away on the way to this call. */
export function isNarrowed({ mounts, isNetworkNarrowed, secrets, limits }: Compared): boolean {
  return (
    mounts.some(({ change }) => change !== "kept") ||
    isNetworkNarrowed ||
    secrets.some(({ change }) => change === "lost") ||
    limits.some(isLower)
  );
}

export function isLower({ amount, callers }: ComparedLimit): boolean {
  return callers !== null && amount < callers;
}
