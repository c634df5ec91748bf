import type { Readable } from "node:stream";
import type Docker from "dockerode";
import { z } from "zod";
import { within } from "../../../platform/within.ts";
import { EngineTrouble } from "../../port/driver.ts";
import type { SavedImage } from "../../port/images.ts";
import { asked, isGone, told } from "../answers/asked.ts";

const Layered = z.looseObject({
  Id: z.string(),
  RootFS: z.looseObject({ Layers: z.array(z.string().regex(/^sha256:[0-9a-f]{64}$/)).nullish() }),
});

/** An Engine may copy all of an image before it answers. */
const ANSWER_MS = 600_000;

/** An image as `docker save` has it, from any Engine; null if there is no such image. Rejects with `EngineTrouble`. */
export async function savedImage(docker: Docker, image: string): Promise<SavedImage | null> {
  const orNull = (error: unknown): null => {
    if (isGone(error)) return null;
    throw error;
  };
  const found = await told(asked(() => docker.getImage(image).inspect(), Layered).catch(orNull));
  if (found === null) return null;
  if (found.Id !== image) throw new EngineTrouble("the Engine described another image than the one that was asked for");
  return {
    layers: found.RootFS.Layers ?? [],
    async content() {
      const getting = told(docker.getImage(image).get().catch(orNull)) as Promise<Readable | null>;
      const got = await within(
        getting.then((content) => ({ content })),
        ANSWER_MS,
      );
      if (got !== null) return got.content;
      void getting.then((content) => content?.destroy()).catch(() => {});
      throw new EngineTrouble(`the Engine did not begin to save the image for ${ANSWER_MS / 60_000} minutes`);
    },
  };
}
