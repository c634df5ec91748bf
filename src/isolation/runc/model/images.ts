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
  /**
   * Directories that an overlay takes as its lower layers, the uppermost first: the image's own layers, or one directory where
   * they are mounted already. They are passed to the kernel on one page: see {@link MAX_LAYERS_BYTES}.
   */
  readonly layers: readonly string[];
}

/** The layers of an image, joined, have at most so many bytes. None of them contains a comma, a colon or a backslash. */
export const MAX_LAYERS_BYTES = 3000;
