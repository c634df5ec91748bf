import type { ImageFacts } from "../../isolation/plan/plan-for.ts";
import type { Driver } from "../../isolation/port/driver.ts";

/** Asks the Engine once for each image: a look at thousands of call paths needs the same few again and again. */
export function rememberingImages(driver: Driver): Driver {
  const known = new Map<string, Promise<ImageFacts | null>>();
  return {
    ...driver,
    imageFacts: (image) => {
      const facts = known.get(image) ?? driver.imageFacts(image);
      known.set(image, facts);
      return facts;
    },
  };
}
