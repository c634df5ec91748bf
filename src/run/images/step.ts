import type { EnvironmentInput } from "../../declarations/images/environment-inputs.ts";
import type { EngineImages, FoundImage } from "../../isolation/port/images.ts";
import type { MakeAsk, PartOfImage } from "../model/worker-images.ts";

/** An image that is there, by the Engine's name for it. */
export interface ImageThere extends FoundImage {
  readonly reference: string;
}

/** One thing that is looked for, and made if it is missing. */
export interface Step<Found> extends PartOfImage {
  /** Null if it is missing, or not as its files are now. Makes nothing. */
  look(): Promise<Found | null>;
  /** @throws ImageBuildError with a message for people. */
  make(ask: MakeAsk): Promise<Found>;
}

/** Where images are made, and for which project. */
export interface ImagePlace {
  readonly images: EngineImages;
  /** The folder with the images that come with Corral. */
  readonly imagesDir: string;
  readonly projectDir: string;
  /** The project's mark on what is made for it. */
  readonly project: string;
  readonly stateDir: string;
  /** The directory of this process, which marks what it uses; null: it only looks. */
  readonly ownerDir: string | null;
  /** Null: nothing is prepared. */
  readonly prepare: Prepare | null;
  /** Corral's own environment, for the proxies of builds. */
  readonly env: Readonly<Record<string, string | undefined>>;
}

/** Fills an empty directory with the packages, in a cell. @throws ImageBuildError */
export type Prepare = (request: PrepareRequest, ask: MakeAsk) => Promise<void>;

export interface PrepareRequest {
  readonly input: EnvironmentInput;
  readonly name: string;
  /** The Engine's name of the image in which it is prepared and used. */
  readonly image: string;
  /** The only addresses at which the registries may be; empty: any that is public. */
  readonly addresses: readonly string[];
  /** The directory, with the input's files in it, which the cell may write. */
  readonly tree: string;
}
