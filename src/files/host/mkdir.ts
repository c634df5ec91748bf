import type { Place } from "../model/place.ts";
import { openFolder } from "./folder.ts";
import type { Root } from "./roots.ts";

export function makePlace(root: Root, place: Place): { readonly created: boolean } {
  const { folder, created } = openFolder("mkdir", root, place, place.parts, true);
  folder[Symbol.dispose]();
  return { created };
}
