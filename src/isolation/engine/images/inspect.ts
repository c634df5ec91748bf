import type Docker from "dockerode";
import type { ImageFacts } from "../../plan/plan-for.ts";

/** What the Engine knows of an image, by its id or tag; null if it has none. */
export async function inspectImage(docker: Docker, reference: string): Promise<Docker.ImageInspectInfo | null> {
  try {
    return await docker.getImage(reference).inspect();
  } catch (error) {
    if ((error as { statusCode?: number }).statusCode === 404) return null;
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
