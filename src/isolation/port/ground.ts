import type { LayerStore } from "./layer-store.ts";

/** What of an engine a driver needs that shares its images and its machine, and makes its cells without it. */
export interface EngineGround extends LayerStore {
  readonly facts: EngineFacts;
}

export interface EngineFacts {
  /** True if it is reached over a Unix socket: it may still be in a virtual machine. */
  readonly isLocal: boolean;
  readonly version: string;
  /** How it keeps images, e.g. `overlay2`. */
  readonly storage: string;
  /** What protects its containers, e.g. `apparmor` or `selinux`. */
  readonly security: readonly string[];
  /** The program of its default runtime, as it calls it; null if that is not runc. */
  readonly runc: string | null;
  /** The program that is the first process of its containers, as it calls it. */
  readonly init: string;
}
