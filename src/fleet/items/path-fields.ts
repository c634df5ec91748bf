import { posix } from "node:path";

/**
 * An item's fields, and those that follow from its `path` where it does not have them itself: `name`, `stem`, `ext` (with
 * its dot), and for a path that is relative or lies in `folder` also `relative` and `dir`, both from there.
 */
export function withPathFields(fields: Readonly<Record<string, unknown>>, folder: string): Record<string, unknown> {
  // What is not its own is nobody's: a field may well be called `constructor`.
  const path = Object.hasOwn(fields, "path") ? fields.path : undefined;
  return typeof path !== "string" || path === "" ? { ...fields } : { ...pathFields(path, folder), ...fields };
}

function pathFields(path: string, folder: string): Record<string, string> {
  const name = posix.basename(path);
  const ext = posix.extname(name);
  const fields = { name, stem: name.slice(0, name.length - ext.length), ext };
  const relative = relativeTo(folder, path);
  if (relative === null) return fields;
  const dir = posix.dirname(relative);
  return { ...fields, relative, dir: dir === "." ? "" : dir };
}

/** A path that would leave the folder keeps its `..`, and is refused where it is used. */
function relativeTo(folder: string, path: string): string | null {
  if (!path.startsWith("/")) return path.replace(/^(\.\/+)+/, "");
  const below = folder === "/" ? "/" : `${folder}/`;
  return path.startsWith(below) ? path.slice(below.length) : null;
}
