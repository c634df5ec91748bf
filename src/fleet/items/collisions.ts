import { covers, type VirtualPath } from "../../sandbox/virtual-path.ts";

/** A path that an item may write. */
export interface OutputPlace {
  /** A canonical virtual path. */
  readonly path: string;
  readonly key: string;
}

/** Two items with overlapping outputs. */
export interface Collision {
  /** The inner of the two paths, or the common one. */
  readonly path: string;
  readonly key: string;
  readonly with: OutputPlace;
}

export interface Collisions {
  /** How many paths equal another item's path or are below one. */
  readonly count: number;
  /** The first of them. */
  readonly first: readonly Collision[];
}

const MAX_LISTED = 20;

/**
 * Every path that equals or is below a path of another item; null if there is none. The input is sorted by components, so
 * that paths below a path follow it directly (`/a`, `/a/c`, `/a-b`). Only the ancestors of the current path are in memory.
 */
export async function collisionsIn(sorted: AsyncIterable<OutputPlace>): Promise<Collisions | null> {
  const ancestors: Ancestor[] = [];
  const first: Collision[] = [];
  let count = 0;
  for await (const place of sorted) {
    while (!covers((ancestors.at(-1)?.path ?? "/") as VirtualPath, place.path as VirtualPath)) ancestors.pop();
    const other = otherThan(place.key, ancestors);
    if (other !== null) {
      count += 1;
      if (first.length < MAX_LISTED) first.push({ path: place.path, key: place.key, with: other });
    }
    note(place, ancestors);
  }
  return count === 0 ? null : { count, first };
}

/** For people: which items' outputs collide. */
export function describeCollisions({ count, first }: Collisions): string {
  const lines = first.map(({ path, key, with: other }) =>
    path === other.path
      ? `${other.key} and ${key} would both write to ${path}`
      : `${path} of ${key} is below ${other.path} of ${other.key}`,
  );
  const more = count > first.length ? [`and ${count - first.length} more`] : [];
  return [...lines, ...more].join("\n");
}

/** One path and the items that may write it. Two items are enough to report a collision. */
interface Ancestor {
  readonly path: string;
  readonly keys: string[];
}

function otherThan(key: string, ancestors: readonly Ancestor[]): OutputPlace | null {
  for (const { path, keys } of ancestors.toReversed()) {
    const other = keys.find((each) => each !== key);
    if (other !== undefined) return { path, key: other };
  }
  return null;
}

function note({ path, key }: OutputPlace, ancestors: Ancestor[]): void {
  const last = ancestors.at(-1);
  if (last?.path !== path) ancestors.push({ path, keys: [key] });
  else if (last.keys.length < 2 && !last.keys.includes(key)) last.keys.push(key);
}
