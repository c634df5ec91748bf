import { join } from "node:path";
import { PACKAGE_ROOT } from "../../declarations/place/package-root.ts";
import type { Project } from "../../declarations/project.ts";
import type { EngineImages } from "../../isolation/port/images.ts";
import { projectMark } from "../../state/state-paths.ts";
import type { ImagePlace } from "../images/step.ts";
import type { OpenOptions } from "./options.ts";

/** The images that come with Corral. */
const IMAGES_DIR = join(PACKAGE_ROOT, "images");

/** Where the images of a project's workers are looked for and made. */
export function imagePlaceOf(
  { dir }: Pick<Project, "dir">,
  images: EngineImages,
  { stateDir, engineEnv }: Pick<OpenOptions, "stateDir" | "engineEnv">,
  { ownerDir, prepare }: Pick<ImagePlace, "ownerDir" | "prepare"> = { ownerDir: null, prepare: null },
): ImagePlace {
  const project = projectMark(dir);
  return { images, imagesDir: IMAGES_DIR, projectDir: dir, project, stateDir, ownerDir, prepare, env: engineEnv };
}
