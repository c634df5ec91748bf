import type { Maker } from "../../port/labels.ts";
import type { ImageRoots } from "./images.ts";
import type { RuncPaths } from "./layout.ts";

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

/** Absolute paths of programs of this machine, which belong to root and which no other user can write. */
export interface RuncPrograms {
  readonly runc: string;
  /** The static init that the Engine's containers have as their first process, e.g. `/usr/bin/docker-init`. */
  readonly init: string;
  /** GNU's `env`, which undoes that a signal is ignored; absent if this machine has none. */
  readonly env?: string;
}
