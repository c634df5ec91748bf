/** What a driver that mounts images itself needs of the engine that has them. Rejects with `EngineTrouble`. */
export interface LayerStore {
  /** The directories on this host that an image is made of, or why they cannot be used. `image` is an id. Null if there is no such image. */
  layers(image: string): Promise<ImageLayers | null>;
  /** Keeps an image from removal, with something of this state directory's that stays until `release`. False if there is no such image. */
  keep(image: string): Promise<boolean>;
  /** No error if the image was not kept. */
  release(image: string): Promise<void>;
  /** The ids of all images that this state directory keeps. */
  kept(): Promise<readonly string[]>;
  /** Releases what state directories kept that do not exist any more. Answers with the images; `dryRun`: that is all. */
  releaseAbandoned(options: { readonly dryRun: boolean }): Promise<readonly string[]>;
}

export type ImageLayers =
  /** Absolute, the topmost first, by paths that are as short as possible. */
  | { readonly ok: true; readonly dirs: readonly string[] }
  /** `reason`: for people, e.g. that the engine keeps its images in another way. */
  | { readonly ok: false; readonly reason: string };
