import type { Descriptor } from "../../files/host/descriptor.ts";
import type { Change } from "../model/changeset.ts";
import { factsOf, type RawName, rawBytes, rawNameOf, rawStat } from "../model/raw-name.ts";
import type { BaseNode } from "./base-tree.ts";
import type { View } from "./view.ts";

/** Adds one applied change to the base of a view that is still in use. */
export function rebase(view: Pick<View, "base" | "target" | "kind">, change: Change): void {
  const names = change.parts.map(rawNameOf);
  const name = names.at(-1);
  if (name === undefined) return;
  const folder = childrenAt(view.base as Map<RawName, BaseNode>, names.slice(0, -1));
  if (folder === null) return;
  if (change.kind === "delete") {
    folder.delete(name);
    return;
  }
  const facts = factsAt(view.target, names);
  if (facts === null) return;
  const before = folder.get(name);
  const children = facts.type === "directory" ? (before?.children ?? new Map()) : null;
  const brought = before?.brought ?? (view.kind === "overlay" && change.kind === "create");
  folder.set(name, { facts, hidden: false, children, brought });
}

function childrenAt(base: Map<RawName, BaseNode>, names: readonly RawName[]): Map<RawName, BaseNode> | null {
  let current: Map<RawName, BaseNode> | null = base;
  for (const name of names) current = (current?.get(name)?.children ?? null) as Map<RawName, BaseNode> | null;
  return current;
}

function factsAt(target: Descriptor, names: readonly RawName[]): BaseNode["facts"] {
  try {
    using folder = target.below(names.slice(0, -1).map(rawBytes));
    const stats = rawStat(folder, names.at(-1) ?? "");
    return stats === null ? null : factsOf(stats);
  } catch {
    // It was changed since: the next scan finds out.
    return null;
  }
}
