import { join } from "node:path";

/** Everything that Corral keeps in its state directory. Only Corral writes there, and no cell may be shown any of it. */
export interface StatePaths {
  /** One directory for each living orchestrator: its sockets, views, grants and fleets. */
  readonly live: string;
  /** The secret that seals the labels of what Corral makes. */
  readonly sealKey: string;
  /** `hosts` and `resolv.conf` of cells without a network. */
  readonly names: string;
  /** The static binary that verifies each cell from inside, by its SHA-256, and its copy that cannot be read. */
  readonly gate: string;
  /** Which Debian the images are built on. */
  readonly imagesRecord: string;
  /** Held by the one process that builds images. */
  readonly imagesLock: string;
}

/** `stateDir`: absolute, as `stateDirFrom` gives it. */
export function statePaths(stateDir: string): StatePaths {
  const below = (name: string): string => join(stateDir, name);
  return {
    live: below("live"),
    sealKey: below("seal.key"),
    names: below("names"),
    gate: below("gate"),
    imagesRecord: below("images.json"),
    imagesLock: below("images.lock"),
  };
}
