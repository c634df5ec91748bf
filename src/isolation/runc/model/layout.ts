import { join } from "node:path";
import { sha256 } from "../../../platform/sha256.ts";
import { statePaths } from "../../../state/state-paths.ts";

/** What the cells of one state directory have on disk. No cell is ever shown any of it. */
export function runcPaths(stateDir: string) {
  const { runc } = statePaths(stateDir);
  return {
    /** `--root` of runc: a directory for each cell, by {@link cellId}, with runc's own notes. */
    state: join(runc, "state"),
    /** A directory for each cell, by its run: {@link cellPaths}. */
    cells: join(runc, "cells"),
    /** A directory for each living launcher, by {@link launcherName}: its working directory. */
    launchers: join(runc, "launchers"),
    /** What images consist of and which process uses them, and their layers: `ground/unpacked-images.ts`. */
    images: join(runc, "images"),
    layers: join(runc, "layers"),
    /** Where each launcher mounts its memory, which it alone sees: a bundle for each of its places. Here they are empty. */
    memory: join(runc, "memory"),
  };
}

export type RuncPaths = ReturnType<typeof runcPaths>;

/** How the directory of a cell is called until its labels are in it: then it is renamed, so a cell without labels is never seen. */
export const DRAFT_PREFIX = ".new-";

/** `owner`: of the orchestrator, as text. `mark`: unlike that of any other of its launchers. */
export function launcherName(owner: string, mark: string): string {
  return `${encodeURIComponent(owner)}.${mark}`;
}

/** Null for a name that {@link launcherName} did not make. */
export function ownerOfLauncher(name: string): string | null {
  try {
    return decodeURIComponent(name.replace(/\.[0-9a-f]{12}$/, ""));
  } catch {
    return null;
  }
}

/** The directory of one cell. It is made before anything else of the cell, and removed last. */
export function cellPaths(dir: string) {
  return {
    dir,
    /** The sealed labels, as `port/labels.ts` makes them with the kind `cell` and the name {@link cellId}. */
    labels: join(dir, "labels.json"),
    /** What is written over the image, if the worker may write there; otherwise that is in memory, unseen by this machine, and this is not there. */
    over: join(dir, "over"),
  };
}

export type CellPaths = ReturnType<typeof cellPaths>;

/** The name of a cell for runc, of its control groups, and under its seal: unlike that of any other state directory. */
export function cellId(sealKey: Buffer, run: string): string {
  return `corral-${sha256(sealKey).slice(0, 8)}-${run}`;
}

/**
 * Where the control groups of a cell are, below the mount point of each hierarchy. They are never units of systemd, also where that is the first
 * process (docs/architecture.md, fact: groups-beside-systemd).
 */
export function cgroupPlace(id: string): string {
  return `corral/${id}`;
}
