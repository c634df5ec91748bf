import type Docker from "dockerode";
import { z } from "zod";
import type { ImageFacts } from "../../plan/plan-for.ts";
import { asked } from "../answers/asked.ts";
import { isGone } from "../answers/engine-error.ts";

/** An image may have no configuration, and any field of it may be null. */
const Image = z.looseObject({
  Id: z.string().regex(/^sha256:[0-9a-f]{64}$/),
  Config: z
    .looseObject({
      Env: z.array(z.string()).nullish(),
      Volumes: z.record(z.string(), z.unknown()).nullish(),
    })
    .nullish(),
});

/** What the Engine knows of an image, by its id or tag; null if it has none. */
export async function inspectImage(docker: Docker, reference: string): Promise<Docker.ImageInspectInfo | null> {
  try {
    const image = await asked(() => docker.getImage(reference).inspect(), Image);
    return image as unknown as Docker.ImageInspectInfo;
  } catch (error) {
    if (isGone(error)) return null;
    throw error;
  }
}

/** The image that a name refers to now. Plans hold its id, so that the image that was checked is the one that runs. */
export async function imageFacts(docker: Docker, name: string): Promise<ImageFacts | null> {
  const image = await inspectImage(docker, name);
  if (image === null) return null;
  const { Id, Config } = image;
  return { name, id: Id, env: Config?.Env ?? [], volumes: Object.keys(Config?.Volumes ?? {}).sort() };
}
