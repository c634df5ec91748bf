/** The name of an image before its slash: `corral/base`. */
export const IMAGE_PREFIX = "corral";
/** The image on which the others are built, and which holds the gate. */
export const BASE_NAME = "base";

/** The images that Corral builds itself, each from a folder of `imagesDir` with a Dockerfile. */
export interface EngineImages {
  /** Which images exist and are up to date. Asks the engine only: no registry is asked, nothing is built. */
  status(imagesDir: string): Promise<ImageStatus[]>;
  /**
   * Builds the images that are missing or stale: the base first, then the others. Two processes with one state
   * directory take turns.
   *
   * @throws ImageBuildError with the step and the last lines of its output.
   */
  build(request: ImageBuildRequest): Promise<BuiltImage[]>;
}

export interface ImageStatus {
  readonly name: string;
  readonly tag: string;
  /** `stale`: made of other files, or on another base, than a build would use now. */
  readonly state: "present" | "stale" | "missing";
  readonly id: string | null;
  readonly sizeBytes: number | null;
}

export interface ImageBuildRequest {
  readonly imagesDir: string;
  /** Folder names or tags; absent: every image. The base is always included. */
  readonly names?: readonly string[];
  readonly onProgress: OnImageProgress;
  readonly signal?: AbortSignal;
  /** The proxy variables (`http_proxy`, …), and what npm of this machine needs, which fetches packages for some images. */
  readonly env?: Readonly<Record<string, string | undefined>>;
}

export interface BuiltImage {
  readonly name: string;
  readonly tag: string;
  readonly id: string;
  readonly sizeBytes: number;
  /** False if it was up to date already. */
  readonly built: boolean;
  readonly durationMs: number;
}

/** One line of progress for people. `image` is a tag, e.g. `corral/base`. */
export interface ImageProgress {
  readonly image: string;
  /** The build step, e.g. `3/5 RUN apt-get update`. Absent: `text` is a milestone and not the output of a program. */
  readonly step?: string;
  readonly text: string;
}

export type OnImageProgress = (progress: ImageProgress) => void;

/** An image could not be built or found. The message names the image, the step, and the last lines of its output. */
export class ImageBuildError extends Error {
  override readonly name = "ImageBuildError";
  readonly image: string;

  constructor(image: string, message: string, options?: ErrorOptions) {
    super(`${image}: ${message}`, options);
    this.image = image;
  }
}
