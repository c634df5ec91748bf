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

/** Finds the files of a list that may have a path. */
export interface ArtifactIndex {
  near(path: string): readonly Artifact[];
}

export function indexArtifacts(artifacts: readonly Artifact[]): ArtifactIndex {
  const exact = new Map(artifacts.map((artifact) => [artifact.path, artifact]));
  const patterns = artifacts.filter(({ path }) => path.includes("*"));
  return {
    near(path) {
      if (path.includes("*")) return artifacts;
      const same = exact.get(path);
      return same === undefined ? patterns : [same, ...patterns];
    },
  };
}

/** True if each content that `asked` accepts is accepted there. */
export function artifactInside(asked: Artifact, has: ArtifactIndex): boolean {
  const around = has.near(asked.path).filter(({ path }) => patternInside(asked.path, path));
  return asked.digests.every((digest) => around.some(({ digests }) => digests.includes(digest)));
}

/** The files of both. */
export function meetArtifacts(some: readonly Artifact[], others: ArtifactIndex): readonly Artifact[] {
  return some.flatMap((a) =>
    others.near(a.path).flatMap((b) => {
      const path = meetPatterns(a.path, b.path);
      return path === null ? [] : [{ path, digests: a.digests.filter((digest) => b.digests.includes(digest)) }];
    }),
  );
}
