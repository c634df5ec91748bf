import { NotFoundError } from "../../sandbox/errors.ts";
import { joinVirtual, type VirtualPath } from "../../sandbox/virtual-path.ts";
import type { Place } from "../model/place.ts";
import { BELOW_FILE, unfit } from "../model/refusals.ts";
import { lookUp } from "./replace-file.ts";
import type { Root } from "./roots.ts";
import { type Found, refuseHidden, walk } from "./walk.ts";

/**
 * The real place of a path, after links, none of which may leave the mount. Components at its end need not exist. A link to
 * nothing is refused, since a program that writes to it would make its target.
 */
export function resolvePlace(root: Root, place: Place): VirtualPath {
  const asked = place.path;
  for (let known = place.parts.length; ; known--) {
    using found = existing(root, place, known);
    if (found === null) continue;
    const [name, ...more] = place.parts.slice(known);
    if (name === undefined) return found.path;
    if (found.type !== "directory") throw unfit("stat", asked, BELOW_FILE);
    if (lookUp(found.descriptor, name) !== null) throw new NotFoundError(asked);
    const path = joinVirtual(found.path, [name, ...more].join("/"));
    refuseHidden("stat", root, path, asked);
    return path;
  }
}

/** What the first `known` components lead to; null if there is nothing. The mount itself always exists. */
function existing(root: Root, place: Place, known: number): Found | null {
  try {
    const parts = place.parts.slice(0, known);
    return walk({ operation: "exists", root, parts, links: "follow", asked: place.path });
  } catch (error) {
    if (error instanceof NotFoundError && known > 0) return null;
    throw error;
  }
}
