import { meetPatterns, patternInside } from "./path-glob.ts";
import type { Artifact } from "./rule.ts";

/* Files of lock files. A list has thousands, so those that name one path are found by it. */

/** Sorted by path, with the digests of one path together; without files that no digest accepts. */
export function canonicalArtifacts(artifacts: readonly Artifact[]): Artifact[] {
  const byPath = new Map<string, Set<string>>();
  for (const { path, digests } of artifacts) {
    const known = byPath.get(path) ?? new Set();
    for (const digest of digests) known.add(digest);
    byPath.set(path, known);
  }
  const all = [...byPath].filter(([, digests]) => digests.size > 0);
  return all.sort(([a], [b]) => (a < b ? -1 : 1)).map(([path, digests]) => ({ path, digests: [...digests].sort() }));
}

/** The files at these paths; undefined: at every path. */
export function artifactsBelow(artifacts: readonly Artifact[], paths: readonly string[] | undefined): Artifact[] {
  if (paths === undefined) return [...artifacts];
  const { near } = indexPatterns(paths, (path) => path);
  return artifacts.flatMap(({ path, digests }) =>
    near(path).flatMap((other) => {
      const met = meetPatterns(path, other);
      return met === null ? [] : [{ path: met, digests }];
    }),
  );
}

/** Finds what may have a path in common with another. */
function indexPatterns<Each>(list: readonly Each[], pathOf: (each: Each) => string) {
  const exact = new Map(list.map((each) => [pathOf(each), each]));
  const patterns = list.filter((each) => pathOf(each).includes("*"));
  return {
    near(path: string): readonly Each[] {
      if (path.includes("*")) return list;
      const same = exact.get(path);
      return same === undefined ? patterns : [same, ...patterns];
    },
  };
}

/** Finds the files of a list that may have a path. */
export interface ArtifactIndex {
  near(path: string): readonly Artifact[];
}

export function indexArtifacts(artifacts: readonly Artifact[]): ArtifactIndex {
  return indexPatterns(artifacts, ({ path }) => path);
}

/** True if each content that `asked` accepts is accepted there. */
export function artifactInside(asked: Artifact, has: ArtifactIndex): boolean {
  const around = has.near(asked.path).filter(({ path }) => patternInside(asked.path, path));
  const accepted = new Set(around.flatMap(({ digests }) => digests));
  return asked.digests.every((digest) => accepted.has(digest));
}

/** The files of both. */
export function meetArtifacts(some: readonly Artifact[], others: ArtifactIndex): readonly Artifact[] {
  return some.flatMap((a) =>
    others.near(a.path).flatMap((b) => {
      const path = meetPatterns(a.path, b.path);
      const accepted = new Set(b.digests);
      return path === null ? [] : [{ path, digests: a.digests.filter((digest) => accepted.has(digest)) }];
    }),
  );
}
