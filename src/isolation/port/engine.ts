import { codeOf } from "../../platform/errno.ts";
import type { DriverChoice } from "../../sandbox/driver-choice.ts";
import type { DriverName } from "../plan/plan.ts";
import type { EngineHostPlaces } from "../sources/refused-sources.ts";
import type { CellMaker, Driver } from "./driver.ts";
import type { EngineImages } from "./images.ts";

const AWAY: ReadonlySet<UnavailableReason> = new Set(["no_socket", "refused", "timeout"]);
const BROKEN: ReadonlySet<string> = new Set(["ECONNREFUSED", "ECONNRESET", "EPIPE", "EHOSTUNREACH", "ENETUNREACH"]);
const MAX_CAUSES = 5;

/** Whether an Engine may answer later: none was there, or it ended while it was asked. A wrong setting and a missing right stay. */
export function isEngineAway(error: unknown): boolean {
  let each: unknown = error;
  for (let depth = 0; depth < MAX_CAUSES && each instanceof Error; depth += 1) {
    if (each instanceof EngineUnavailableError && AWAY.has(each.reason)) return true;
    const code = codeOf(each) ?? "";
    if (BROKEN.has(code) || (code === "ENOENT" && (each as NodeJS.ErrnoException).syscall === "connect")) return true;
    each = each.cause;
  }
  return false;
}

/** A container engine on this machine, opened for one state directory: everything that Corral knows of it. */
export interface EnginePort {
  readonly driver: Driver;
  /** Makes the fresh cells of fleets' items, and those of what the items call. They may be another driver's. */
  readonly itemCells: CellMaker;
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
  /** Which driver makes cells for such a use, and why. Found out once, when a cell is first needed. */
  driving(use: DriverUse, policy?: DriverChoice): Promise<Driving>;
  /** The same engine for a project, whose `driver:` chooses if `CORRAL_DRIVER` does not. */
  ofProject(driver: DriverChoice | undefined): EnginePort;
  /** What was unpacked of images for cells that are made without the engine. */
  readonly unpacked: {
    /** Unpacks one, if it is not yet, and uses it; null if the engine does not have it. Rejects with `EngineTrouble`. */
    use(imageId: string): Promise<UnpackedImage | null>;
    measure(): Promise<{ readonly count: number; readonly bytes: number }>;
    /** Removes images of which no living process has a cell. They stay at the engine. */
    letGo(request: LetGoRequest): Promise<LetGo>;
  };
  /** Where the engine is and which setting says so, in one line for people. */
  readonly description: string;
}

/** In use until it is disposed of. */
export interface UnpackedImage extends Disposable {
  /** Absolute: where the layers are. */
  readonly dir: string;
  /** Names of directories in `dir` that an overlay takes as its lower layers, the uppermost first. None has a comma, a colon or a backslash. */
  readonly layers: readonly string[];
}

export interface LetGoRequest {
  /** Absent: all. */
  readonly imageId?: string;
  /** Milliseconds since 1970. Absent: whenever they were used. */
  readonly usedBefore?: number;
  readonly dryRun?: boolean;
}

/** The ids of images, and the bytes of the layers that only those had that go. */
export interface LetGo {
  readonly letGo: readonly string[];
  readonly inUse: readonly string[];
  readonly bytes: number;
}

/** `items`: fresh cells of fleets' items, with what they call. `runs`: all others, scrubbed cells too. */
export type DriverUse = "runs" | "items";

/**
 * `driver`: null if the one that was asked for cannot make cells here; then none does. `why`: for people. `setting`: what has asked for it in vain, if
 * that is not `CORRAL_DRIVER`.
 */
export interface Driving {
  readonly driver: DriverName | null;
  readonly why: string;
  readonly setting?: string;
}

export interface OpenEngineRequest {
  /** Absolute, and made already, unless it `looksOnly`. */
  readonly stateDir: string;
  /** True: only images are asked about. Nothing is made, in the state directory or on the engine. */
  readonly looksOnly?: boolean;
  /** True: a driver that could not make cells, or could, is tried again, and not believed what it did before. */
  readonly triesAgain?: boolean;
  /** Says where the engine is, e.g. DOCKER_HOST, HOME for its client's configuration, and CORRAL_DRIVER. */
  readonly engineEnv: Readonly<Record<string, string | undefined>>;
}

/** Why no engine answered: `setting` is a wrong setting, before anything was tried. */
export type UnavailableReason = "setting" | "no_socket" | "permission" | "refused" | "timeout" | "unfit" | "other";

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

/** The driver that was asked for cannot make cells here. The message says why, and what to do. */
export class DriverUnavailableError extends Error {
  override readonly name = "DriverUnavailableError";

  constructor({ why, setting = "CORRAL_DRIVER or --driver" }: Pick<Driving, "why" | "setting">) {
    super(`${why}. Set ${setting} to auto or engine, or correct that; \`corral doctor\` tries again`);
  }
}
