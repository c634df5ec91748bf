import type { HiddenEntry } from "../../files/model/hidden.ts";
import type { VirtualPath } from "../../sandbox/virtual-path.ts";
import type { RawName } from "../model/raw-name.ts";
import type { BaseNode, BaseTree } from "./base-tree.ts";
import type { View } from "./view.ts";

/** The size of the file that a view leaves out at a place. Null: there is none. */
export function hiddenSizeAt({ base }: Pick<View, "base">, names: readonly RawName[]): number | null {
  const node = nodeAt(base, names);
  return node?.hidden === true && node.facts?.type === "file" ? node.facts.size : null;
}

/** What a view leaves out below a place, at most `depth` levels down. */
export function* hiddenBelow(
  { base, pathOf }: Pick<View, "base" | "pathOf">,
  names: readonly RawName[],
  depth: number,
): Generator<HiddenEntry> {
  const tree = names.length === 0 ? base : (nodeAt(base, names)?.children ?? null);
  if (tree !== null) yield* within(tree, names, depth, pathOf);
}

function* within(
  tree: BaseTree,
  names: readonly RawName[],
  depth: number,
  pathOf: (names: readonly RawName[]) => VirtualPath | null,
): Generator<HiddenEntry> {
  if (depth <= 0) return;
  for (const [name, node] of tree) {
    const at = [...names, name];
    const path = node.hidden ? pathOf(at) : null;
    if (path !== null) yield { path, size: node.facts?.type === "file" ? node.facts.size : null };
    if (node.children !== null) yield* within(node.children, at, depth - 1, pathOf);
  }
}

function nodeAt(base: BaseTree, names: readonly RawName[]): BaseNode | undefined {
  let tree: BaseTree | null = base;
  let node: BaseNode | undefined;
  for (const name of names) {
    node = tree?.get(name);
    tree = node?.children ?? null;
  }
  return node;
}
