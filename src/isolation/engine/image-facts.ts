import type Docker from "dockerode";
import type { ImageFacts } from "../plan/plan-for.ts";
import { isGone } from "./engine-error.ts";

/** The image that a name stands for now. Plans hold its id, so that what was checked is what runs. */
export async function imageFacts(docker: Docker, name: string): Promise<ImageFacts | null> {
  try {
    const { Id, Config } = await docker.getImage(name).inspect();
    return { name, id: Id, env: Config?.Env ?? [], volumes: Object.keys(Config?.Volumes ?? {}).sort() };
  } catch (error) {
    if (isGone(error)) return null;
    throw error;
  }
}
