/** The file systems of the Engine's images, as directories of this machine. */
export interface ImageRoots {
  /**
   * What the image consists of. It stays there until the image itself is removed by a user: no clean-up of the Engine takes it
   * away while a cell may need it. Rejects with `EngineTrouble`; null if there is no such image.
   *
   * @param imageId as in a plan: `sha256:…`.
   */
  rootOf(imageId: string): Promise<ImageRoot | null>;
}

export interface ImageRoot {
  /**
   * Directories that an overlay takes as its lower layers, the uppermost first: the image's own layers, or one directory where
   * they are mounted already. They are passed to the kernel on one page: see {@link MAX_LAYERS_BYTES}.
   */
  readonly layers: readonly string[];
}

/** The layers of an image, joined, have at most so many bytes. None of them contains a comma, a colon or a backslash. */
export const MAX_LAYERS_BYTES = 3000;
