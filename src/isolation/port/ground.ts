import type { Readable } from "node:stream";

/** What of an engine a driver needs that takes its images, and makes cells without it. */
export interface EngineGround {
  readonly facts: EngineFacts;
  /** An image by its id; null if there is no such image. Rejects with `EngineTrouble`. */
  savedImage(id: string): Promise<SavedImage | null>;
}

export interface SavedImage {
  /** SHA-256 of each layer, not compressed, the lowest first: `sha256:…`. */
  readonly layers: readonly string[];
  /** A tar archive of all of it, as the engine exports it; null if the image is gone. Must be read or destroyed. */
  content(): Promise<Readable | null>;
}

export interface EngineFacts {
  /** True if it is reached over a Unix socket: it may still be in a virtual machine. */
  readonly isLocal: boolean;
  readonly version: string;
  /** What protects its containers, e.g. `apparmor` or `selinux`. */
  readonly security: readonly string[];
  /** The program of its default runtime, as it calls it; null if that is not runc. */
  readonly runc: string | null;
  /** The program that is the first process of its containers, as it calls it. */
  readonly init: string;
}
