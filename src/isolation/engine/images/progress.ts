/** One line of what is going on, for people. `image` is a tag, e.g. `corral/base`. */
export interface ImageProgress {
  readonly image: string;
  /** What is being done, e.g. `3/5 RUN apt-get update`. Absent: `text` is a milestone, and not some program's output. */
  readonly step?: string;
  readonly text: string;
}

export type OnImageProgress = (progress: ImageProgress) => void;

/** An image could not be had. The message names the image, the step, and the last lines that it printed. */
export class ImageBuildError extends Error {
  override readonly name = "ImageBuildError";
  readonly image: string;

  constructor(image: string, message: string, options?: ErrorOptions) {
    super(`${image}: ${message}`, options);
    this.image = image;
  }
}
