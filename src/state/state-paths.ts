import { join } from "node:path";
import { sha256 } from "../platform/sha256.ts";

/*
 * Everything that Corral keeps on disk, each path once. Only Corral writes there, and no cell may be shown any of it.
 * The table in docs/state.md says what is where, and what happens to it after a crash.
 */

/** `stateDir`: absolute, as `stateDirFrom` returns it. */
export function statePaths(stateDir: string) {
  return {
    /** One directory for each living orchestrator: its sockets, views, grants and fleets. */
    live: join(stateDir, "live"),
    /** The secret that seals the labels of what Corral makes. */
    sealKey: join(stateDir, "seal.key"),
    /** Changesets that are being applied or wait for a decision. */
    changes: join(stateDir, "changes"),
    /** The static binary that verifies each cell from inside, by its SHA-256. */
    gate: join(stateDir, "gate"),
    /** `hosts` and `resolv.conf` of cells without a network. */
    names: join(stateDir, "names"),
    /** Files that cells with the same content share, by its digest. */
    sharedNames: join(stateDir, "names", "shared"),
    /** Which containers each process started on an Engine. */
    startedContainers: join(stateDir, "containers"),
    /** Cells that Corral makes with runc itself. */
    runc: join(stateDir, "runc"),
    /** Cells that Corral makes with bubblewrap. */
    bwrap: join(stateDir, "bwrap"),
    /** Which Debian the images are built on. */
    imagesRecord: join(stateDir, "images.json"),
    /** What was seen in images that are not Corral's. */
    examinedImages: join(stateDir, "images-examined.json"),
    /** Held by the one process that builds images. */
    imagesLock: join(stateDir, "images.lock"),
    /** What is kept of runs that users and programs started, by project. */
    runs: join(stateDir, "runs"),
    /** Packages that were prepared for cells, by the digest of what they are made of. */
    environments: join(stateDir, "environments"),
    /** Copies of directories of other machines, by the digest of their manifests. */
    mirrors: join(stateDir, "mirrors"),
    /** The directories of images as those of one user: what writable roots show at first. */
    roots: join(stateDir, "roots"),
    /** What sessions showed at some moment, by project. */
    snapshots: join(stateDir, "snapshots"),
    /** Questions and how they were decided, by project. */
    inbox: join(stateDir, "inbox"),
    /** Tokens, events and fleets of `corral serve`. */
    service: join(stateDir, "service"),
    /** The project of the conversions of `corral serve`. It has no files: those of its clients are elsewhere. */
    conversions: join(stateDir, "service", "conversions"),
    /** Node's compile cache of the command line. */
    compiled: join(stateDir, "compiled"),
  };
}

/** The name of a project wherever names must be short. `projectDir`: absolute, without symbolic links. */
export function projectMark(projectDir: string): string {
  return sha256(projectDir).slice(0, 16);
}

/** The audit trail of one project. */
export type TrailPaths = ReturnType<typeof projectPaths>["trail"];

/** What is kept of one project. `projectDir`: absolute, without symbolic links, so that one project has one name. */
export function projectPaths(stateDir: string, projectDir: string) {
  const name = projectMark(projectDir);
  const trailDir = join(stateDir, "audit", name);
  return {
    /** The database of its fleets. */
    fleets: join(stateDir, "fleets", name, "fleets.db"),
    /** Of fleets in a database: which of their attempts have begun to change files here. */
    begun: join(stateDir, "fleets", name, "begun"),
    transcripts: join(stateDir, "transcripts", name),
    runs: join(stateDir, "runs", name),
    inbox: join(stateDir, "inbox", name),
    /** Of its sessions. */
    snapshots: join(stateDir, "snapshots", name),
    /** Mirrors of its repositories. */
    git: join(stateDir, "git", name),
    trail: {
      dir: trailDir,
      /** The records, one a line. */
      trail: join(trailDir, "trail.ndjson"),
      /** The sealed end of the trail when it was last written. */
      head: join(trailDir, "head"),
      lock: join(trailDir, "lock"),
      /** Names the project, for people. */
      project: join(trailDir, "project"),
      /** The project's directory itself. */
      of: projectDir,
    },
  };
}
