import { join } from "node:path";
import { sha256 } from "../platform/sha256.ts";

/*
 * Everything that Corral keeps on disk, each path once. Only Corral writes there, and no cell may be shown any of it.
 * The table in docs/architecture.md ("State on disk") says who writes what, and what happens to it after a crash.
 */

export interface StatePaths {
  /** One directory for each living orchestrator: its sockets, views, grants and fleets. */
  readonly live: string;
  /** The secret that seals the labels of what Corral makes. */
  readonly sealKey: string;
  /** Changesets that are being applied or wait for a decision. */
  readonly changes: string;
  /** The static binary that verifies each cell from inside, by its SHA-256. */
  readonly gate: string;
  /** `hosts` and `resolv.conf` of cells without a network. */
  readonly names: string;
  /** Which Debian the images are built on. */
  readonly imagesRecord: string;
  /** Held by the one process that builds images. */
  readonly imagesLock: string;
  /** Node's compile cache of the command line. */
  readonly compiled: string;
}

/** `stateDir`: absolute, as `stateDirFrom` returns it. */
export function statePaths(stateDir: string): StatePaths {
  return {
    live: join(stateDir, "live"),
    sealKey: join(stateDir, "seal.key"),
    changes: join(stateDir, "changes"),
    gate: join(stateDir, "gate"),
    names: join(stateDir, "names"),
    imagesRecord: join(stateDir, "images.json"),
    imagesLock: join(stateDir, "images.lock"),
    compiled: join(stateDir, "compiled"),
  };
}

/** What is kept of one project. */
export interface ProjectPaths {
  /** The database of its fleets. */
  readonly fleets: string;
  readonly transcripts: string;
  /** Mirrors of its repositories. */
  readonly git: string;
  readonly trail: TrailPaths;
}

/** The audit trail of one project. */
export interface TrailPaths {
  readonly dir: string;
  /** The records, one a line. */
  readonly trail: string;
  /** The sealed end of the trail when it was last written. */
  readonly head: string;
  readonly lock: string;
  /** Names the project, for people. */
  readonly project: string;
  /** The project's directory itself. */
  readonly of: string;
}

/** `projectDir`: absolute, without symbolic links, so that one project has one name. */
export function projectPaths(stateDir: string, projectDir: string): ProjectPaths {
  const name = sha256(projectDir).slice(0, 16);
  const trailDir = join(stateDir, "audit", name);
  return {
    fleets: join(stateDir, "fleets", name, "fleets.db"),
    transcripts: join(stateDir, "transcripts", name),
    git: join(stateDir, "git", name),
    trail: {
      dir: trailDir,
      trail: join(trailDir, "trail.ndjson"),
      head: join(trailDir, "head"),
      lock: join(trailDir, "lock"),
      project: join(trailDir, "project"),
      of: projectDir,
    },
  };
}
