import type { Readable } from "node:stream";

/** The name of an image before its slash: `corral/base`. */
export const IMAGE_PREFIX = "corral";
/** The image on which the others are built, and which holds the gate. */
export const BASE_NAME = "base";

/**
 * Devices that an image may bring, since every cell has them in /dev: characters 1:3 null, 1:5 zero, 1:7 full, 1:8 random, 1:9 urandom,
 * 5:0 tty, 5:2 ptmx. In hexadecimal.
 */
export const HARMLESS_DEVICES: ReadonlySet<string> = new Set("1:3 1:5 1:7 1:8 1:9 5:0 5:2".split(" "));

/** The images of the engine: those that come with Corral, and those that a project's workers have of their own. */
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
  /**
   * Builds an image for a project from files that were read already, unless it exists. Two processes with one state directory
   * take turns. What the build fetches goes through this machine's proxies.
   *
   * @throws ImageBuildError with the step and the last lines of its output.
   */
  make(request: MakeImageRequest): Promise<FoundImage>;
  /** The images of the engine that `make` made, for any project. */
  made(): Promise<MadeImage[]>;
  /**
   * Fetches an image from its registry, without a login.
   *
   * @throws ImageBuildError with what the registry or the engine said.
   */
  pull(reference: string, request: Pick<MakeImageRequest, "onProgress" | "signal">): Promise<FoundImage>;
  /** By its name or id; null if the engine does not have it. */
  find(reference: string): Promise<FoundImage | null>;
  /** Takes the name away and, if it was the last one, the image. False if it is gone already. A cell may still use it: an `ImageBuildError`. */
  remove(reference: string): Promise<boolean>;
}

export interface MakeImageRequest {
  /** Where the image belongs to, and what it is made of. Its name and these labels say the same. */
  readonly made: MadeFrom;
  readonly files: readonly ContextFile[];
  readonly onProgress: OnImageProgress;
  readonly signal?: AbortSignal | undefined;
  /** Only the proxy variables (`http_proxy`, …) are read. */
  readonly env?: Readonly<Record<string, string | undefined>>;
}

/** One file that a build sees. */
export interface ContextFile {
  /** Relative to the folder of the Dockerfile, with slashes. */
  readonly name: string;
  readonly content: Buffer;
  /** Absent: false. */
  readonly executable?: boolean;
}

export interface MadeFrom {
  /** `build` from a folder of the project, `apt` with packages of Debian. */
  readonly kind: "build" | "apt";
  /** The project's mark, as in the state directory. */
  readonly project: string;
  /** For people: `images/ocr`, or the names of the packages. */
  readonly name: string;
  /** SHA-256 of everything that it is made of: files and base images. */
  readonly digest: string;
}

export interface FoundImage {
  readonly id: string;
  readonly sizeBytes: number;
  /** `python@sha256:…`, for an image of a registry. */
  readonly digests: readonly string[];
}

export interface MadeImage extends MadeFrom {
  /** Its name at the engine. */
  readonly tag: string;
  readonly id: string;
  readonly sizeBytes: number;
}

/** The repository of every image that is made for a project. No registry is ever asked for it. */
export const MADE_PREFIX = "corral-built";

/** The engine's name of a made image: by its contents, so that a changed folder has another one. */
export function madeTag({ kind, name, digest }: MadeFrom): string {
  const last = kind === "apt" ? kind : (name.split("/").at(-1) ?? "");
  const plain = last
    .toLowerCase()
    .replace(/[^a-z0-9]+/g, "-")
    .replace(/^-+|-+$/g, "")
    .slice(0, 40);
  return `${MADE_PREFIX}/${plain || "image"}:${digest.slice(0, 20)}`;
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
  /** What Corral itself knows of the cause, if it is more than what the program said. */
  readonly why: string | undefined;

  constructor(image: string, message: string, options: ErrorOptions & { why?: string | undefined } = {}) {
    super(`${image}: ${message}`, options);
    this.image = image;
    this.why = options.why;
  }
}

// biome-ignore lint/suspicious/noControlCharactersInRegex: they are what is removed.
const COLORS = /\u001b\[[0-9;]*[A-Za-z]/g;
const SAYS_WHY = /\berr(or|!)|^E: |\bfatal\b|\bnot found\b|\bfailed\b|\bcannot\b/i;
/** What programs print about their errors, and about themselves. */
const SAYS_LITTLE =
  /complete log of this run|^Step \d|^ *---> |^Removing intermediate container|returned a non-zero code/;

/** A line of a program's output without the colours of a terminal. */
export function withoutColors(line: string): string {
  return line.replaceAll(COLORS, "");
}

/** The line of a failed program's last ones that says why it failed; empty if there are none. */
export function causeIn(lines: readonly string[]): string {
  const told = lines.map((line) => withoutColors(line).trim()).filter((line) => line !== "" && !SAYS_LITTLE.test(line));
  return (told.findLast((line) => SAYS_WHY.test(line)) ?? told.at(-1) ?? "").slice(0, 500);
}

/** What of an engine a driver needs that takes its images, and makes cells without it. */
export interface EngineGround {
  readonly facts: EngineFacts;
  /** An image by its id; null if there is no such image. Rejects with `EngineTrouble`. */
  savedImage(id: string): Promise<SavedImage | null>;
}

export interface SavedImage {
  /** SHA-256 of each layer, not compressed, the lowest first: `sha256:…`. */
  readonly layers: readonly string[];
  /** Of all of them, as the Engine counts. */
  readonly bytes: number;
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
