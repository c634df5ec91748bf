import type { EngineHostPlaces } from "../sources/refused-sources.ts";
import type { Driver } from "./driver.ts";
import type { EngineImages } from "./images.ts";

/** A container engine on this machine, opened for one state directory: everything that Corral knows of it. */
export interface EnginePort {
  readonly driver: Driver;
  readonly images: EngineImages;
  /**
   * The host path of Corral's static binary, which verifies each cell from inside and then becomes the worker.
   *
   * @throws ImageBuildError if the base image, which holds it, was not built.
   */
  gate(): Promise<string>;
  /** The same, or null if the first run has yet to make it. Makes nothing. */
  knownGate(): Promise<string | null>;
  /** What of the engine itself is on this host; no mount may show it. */
  readonly hostPlaces: EngineHostPlaces;
  /** Where the engine is and which setting says so, in one line for people. */
  readonly description: string;
}

export interface OpenEngineRequest {
  /** Absolute, and made already, unless it `looksOnly`. */
  readonly stateDir: string;
  /** True: only images are asked about. Nothing is made, in the state directory or on the engine. */
  readonly looksOnly?: boolean;
  /** Says where the engine is, e.g. DOCKER_HOST, and HOME for its client's configuration. */
  readonly engineEnv: Readonly<Record<string, string | undefined>>;
}

/** Why no engine answered: `setting` is a wrong setting, before anything was tried. */
export type UnavailableReason = "setting" | "no_socket" | "permission" | "refused" | "timeout" | "other";

/** No engine answered. The message says what was tried, why it failed, and what to do. */
export class EngineUnavailableError extends Error {
  override readonly name = "EngineUnavailableError";
  readonly reason: UnavailableReason;
  /** The setting that says where the engine is, e.g. `DOCKER_HOST`; null if that setting is wrong. */
  readonly source: string | null;

  constructor(message: string, about: { reason: UnavailableReason; source: string | null; cause: unknown }) {
    super(message, { cause: about.cause });
    this.reason = about.reason;
    this.source = about.source;
  }
}
