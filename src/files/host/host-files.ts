import { bytesOf } from "../model/content-bytes.ts";
import type { Files } from "../model/files.ts";
import type { Place } from "../model/place.ts";
import { type FileOperation, withRefusals } from "../model/refusals.ts";
import { appendFile } from "./append.ts";
import { copyPlace, type End } from "./copy.ts";
import { deletePlace } from "./delete.ts";
import { editFile } from "./edit.ts";
import { makePlace } from "./folder.ts";
import { listPlace } from "./list.ts";
import { lookAtPlace } from "./look.ts";
import { movePlace } from "./move.ts";
import { readBytes, readFile } from "./read.ts";
import { resolvePlace } from "./resolve.ts";
import { type HostMount, openRoots, type Root } from "./roots.ts";
import { placeExists, statPlace } from "./stat.ts";
import { writeFile } from "./write.ts";

/**
 * The files of host directories, safe against other processes that change them at the same time. The directories stay open
 * until this is disposed of, so, as in a cell, a directory that is replaced later is not seen.
 */
export function openHostFiles(mounts: readonly HostMount[]): Files {
  const roots = openRoots(mounts);
  const on = <T>(operation: FileOperation, place: Place, work: (root: Root) => T | Promise<T>): Promise<T> =>
    withRefusals(operation, place.path, () => work(roots.get(operation, place.mount)));
  const between = <T>(
    operation: "move" | "copy",
    ends: { readonly from: Place; readonly to: Place },
    work: (from: End, to: End) => Promise<T>,
  ): Promise<T> => {
    const end = (place: Place): End => ({ root: roots.get(operation, place.mount), place });
    return withRefusals(operation, ends.from.path, () => work(end(ends.from), end(ends.to)));
  };
  return {
    read: (place, options = {}) => on("read", place, (root) => readFile(root, place, options)),
    bytes: (place, options) => on("read", place, (root) => readBytes(root, place, options)),
    write: (place, content, options = {}) =>
      on("write", place, (root) => writeFile(root, place, bytesOf(content), options)),
    append: (place, content, options = {}) =>
      on("append", place, (root) => appendFile(root, place, bytesOf(content), options)),
    edit: (place, edits, options = {}) => on("edit", place, (root) => editFile(root, place, edits, options)),
    delete: (place, options = {}) => on("delete", place, (root) => deletePlace(root, place, options)),
    move: (from, to, options = {}) => between("move", { from, to }, (a, b) => movePlace(a, b, options)),
    copy: (from, to, options = {}) => between("copy", { from, to }, (a, b) => copyPlace(a, b, options)),
    mkdir: (place) => on("mkdir", place, (root) => makePlace(root, place)),
    exists: (place) => on("exists", place, (root) => placeExists(root, place)),
    stat: (place) => on("stat", place, (root) => statPlace(root, place)),
    list: (place, options = {}) => on("list", place, (root) => listPlace(root, place, options)),
    look: (place, options) => on(options.operation, place, (root) => lookAtPlace(root, place, options)),
    resolve: (place) => on("stat", place, (root) => resolvePlace(root, place)),
    [Symbol.dispose]: () => roots[Symbol.dispose](),
  };
}
