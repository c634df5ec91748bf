import { join } from "node:path";
import { sha256 } from "../../../platform/sha256.ts";
import { statePaths } from "../../../state/state-dir.ts";
import type { Plan } from "../../plan/plan.ts";
import type { Maker } from "../../port/labels.ts";

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
  };
}

export type CellPaths = ReturnType<typeof cellPaths>;

/** The name of a cell for runc, of its control groups, and under its seal: unlike that of any other state directory. */
export function cellId(sealKey: Buffer, run: string): string {
  return `corral-${sha256(sealKey).slice(0, 8)}-${run}`;
}

/**
 * Where the control groups of a cell are, below the mount point of each hierarchy. They are never units of systemd, also where that is the first
 * process (docs/facts.md, fact: groups-beside-systemd).
 */
export function cgroupPlace(id: string): string {
  return `corral/${id}`;
}

/** Words after the name of a runtime: crun would ask systemd for control groups if that is there. */
export function runtimeWords(kind: OciRuntime["kind"]): string[] {
  return kind === "crun" ? ["--cgroup-manager=cgroupfs"] : [];
}

/** Why such a plan is for the Engine and not for this driver, in words for people; null if this driver enforces all of it. */
export function notForRunc({ network, hardening }: Pick<Plan, "network" | "hardening">): string | null {
  if (network === "open") return "it has the open network, which is the Engine's own";
  if (hardening.runtime !== undefined)
    return `it runs under ${[hardening.runtime].flat().join(" or ")}, a runtime of the Engine's`;
  if (hardening.seccomp !== "corral") return "it has the Engine's own seccomp profile";
  return null;
}

/** Why crun cannot make the cell of a plan that runc can; null if it can. */
export function notForCrun({ mounts, tmpfs, keeper }: Pick<Plan, "mounts" | "tmpfs" | "keeper">): string | null {
  // It would give them its own streams, which are sockets: no program opens one by the name `/dev/stdout`.
  if (keeper !== undefined) return "its commands are started by the runtime";
  // It makes a mount read-only after the others were made, so the place of an inner one could be made in what was granted.
  const inner = [...mounts, ...tmpfs].find(({ path }) => mounts.some((outer) => path.startsWith(`${outer.path}/`)));
  return inner === undefined ? null : `it has a mount inside of another: ${inner.path}`;
}

/** What the cells of this driver are made with. */
export interface RuncOptions {
  readonly maker: Maker;
  readonly paths: RuncPaths;
  readonly images: ImageRoots;
  /** The seccomp profile `corral`, as JSON text in the Engine's format. */
  readonly seccomp: string;
  /** The directory of `hosts`, `resolv.conf` and `hostname`; no worker can write there. */
  readonly namesDir: string;
  readonly programs: RuncPrograms;
  /** The AppArmor profile of the Engine's own containers, if this machine enforces one. */
  readonly apparmor?: string;
}

/** The program that makes cells. Both take the same configuration, and each keeps some of it in a way of its own. */
export interface OciRuntime {
  readonly kind: "runc" | "crun";
  readonly path: string;
}

/** Absolute paths of programs of this machine, which belong to root and which no other user can write. */
export interface RuncPrograms {
  readonly runtime: OciRuntime;
  /** The static init that the Engine's containers have as their first process, e.g. `/usr/bin/docker-init`. */
  readonly init: string;
  /** GNU's `env`, which undoes that a signal is ignored; absent if this machine has none. */
  readonly env?: string;
}

/** The file systems of the Engine's images, as directories of this machine. */
export interface ImageRoots {
  /**
   * What the image consists of, for one cell. Until this is disposed the image is not removed, unless by force. Rejects with
   * `EngineTrouble`; null if there is no such image.
   *
   * @param imageId as in a plan: `sha256:…`.
   */
  use(imageId: string): Promise<ImageUse | null>;
}

export type ImageUse = ImageRoot & Disposable;

export interface ImageRoot {
  /** Absolute: where the layers are. */
  readonly dir: string;
  /** Names of directories in `dir` that an overlay takes as its lower layers, the uppermost first. None has a comma, a colon or a backslash. */
  readonly layers: readonly string[];
  /** Another one after the image was removed and unpacked again: what was mounted before is of no use. */
  readonly mark: string;
}
