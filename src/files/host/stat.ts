import { hasCode } from "../../platform/errno.ts";
import { NotFoundError, SandboxError } from "../../sandbox/errors.ts";
import type { FileInfo } from "../model/files.ts";
import type { Place } from "../model/place.ts";
import type { FileOperation } from "../model/refusals.ts";
import type { Root } from "./roots.ts";
import { type Found, walk } from "./walk.ts";

export function statPlace(root: Root, place: Place, operation: FileOperation = "stat"): FileInfo {
  using found = lookAt(operation, root, place);
  const { type, stats } = found;
  return { path: place.path, type, size: type === "file" ? stats.size : null, modifiedMs: stats.mtimeMs };
}

export function placeExists(root: Root, place: Place): boolean {
  try {
    statPlace(root, place, "exists");
    return true;
  } catch (error) {
    if (error instanceof NotFoundError) return false;
    // A file has nothing below it.
    if (hasCode(error, "ENOTDIR")) return false;
    throw error;
  }
}

/** A link that cannot be followed is described itself. */
function lookAt(operation: FileOperation, root: Root, place: Place): Found {
  const asked = { operation, root, parts: place.parts, asked: place.path };
  try {
    return walk({ ...asked, links: "follow" });
  } catch (error) {
    if (!(error instanceof SandboxError)) throw error;
    const link = linkItself(asked);
    if (link === null) throw error;
    return link;
  }
}

function linkItself(asked: Omit<Parameters<typeof walk>[0], "links">): Found | null {
  try {
    const found = walk({ ...asked, links: "refuse" });
    if (found.type === "link") return found;
    found[Symbol.dispose]();
    return null;
  } catch {
    // The caller reports the first error.
    return null;
  }
}
