import { covers, type VirtualPath } from "../../sandbox/virtual-path.ts";

/** Where an item may write. */
export interface OutputPlace {
  /** A canonical virtual path. */
  readonly path: string;
  readonly key: string;
}

/** Two items of which one may write what the other may: neither would be by itself. */
export interface Collision {
  /** The inner of the two places, or both where they are equal. */
  readonly path: string;
  readonly key: string;
  readonly with: OutputPlace;
}

export interface Collisions {
  /** How many places lie in, or are, another item's. */
  readonly count: number;
  /** The first of them. */
  readonly first: readonly Collision[];
}

const MAX_TOLD = 20;

/**
 * Every place that equals or lies in one of another item; null where there is none. The places come sorted by components,
 * so that what lies below a path follows it at once: `/a`, `/a/c`, `/a-b`, which is not the order of the texts. In memory are
 * only the places that hold the present one.
 */
export function collisionsIn(sorted: Iterable<OutputPlace>): Collisions | null {
  const ancestors: Ancestor[] = [];
  const first: Collision[] = [];
  let count = 0;
  for (const place of sorted) {
    while (!covers((ancestors.at(-1)?.path ?? "/") as VirtualPath, place.path as VirtualPath)) ancestors.pop();
    const other = otherThan(place.key, ancestors);
    if (other !== null) {
      count += 1;
      if (first.length < MAX_TOLD) first.push({ path: place.path, key: place.key, with: other });
    }
    note(place, ancestors);
  }
  return count === 0 ? null : { count, first };
}

/** For people: which items would write where. */
export function describeCollisions({ count, first }: Collisions): string {
  const lines = first.map(({ path, key, with: other }) =>
    path === other.path
      ? `${path}: both ${other.key} and ${key} would write there`
      : `${path} of ${key} lies in ${other.path} of ${other.key}`,
  );
  const more = count > first.length ? [`and ${count - first.length} more`] : [];
  return [...lines, ...more].join("\n");
}

/** One place and who may write it. Of many items with the same place two are as good as all. */
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
