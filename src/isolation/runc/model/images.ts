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
  /** Absolute: where the layers are. */
  readonly dir: string;
  /** Names of directories in `dir` that an overlay takes as its lower layers, the uppermost first. None has a comma, a colon or a backslash. */
  readonly layers: readonly string[];
  /** Another one after the image was removed and unpacked again: what was mounted before is of no use. */
  readonly mark: string;
}
