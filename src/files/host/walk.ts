import fs from "node:fs";
import posix from "node:path/posix";
import { hasCode } from "../../platform/errno.ts";
import { NotFoundError, type SandboxError } from "../../sandbox/errors.ts";
import { covers, joinVirtual, type VirtualPath } from "../../sandbox/virtual-path.ts";
import type { EntryType } from "../model/files.ts";
import { type FileOperation, LinkLeavesError, unfit } from "../model/refusals.ts";
import type { Descriptor, Root } from "./descriptor.ts";

/** The most names of a directory that are compared. */
const MAX_COMPARED = 1000;
const MAX_SHOWN = 5;

/** Paths in a directory that a caller who asked for `name` may have meant: another case, Unicode form or suffix. */
export function namesNear(folder: Descriptor, name: string, path: VirtualPath): string[] {
  const near = namesIn(folder).filter((other) => isNear(folded(name), folded(other)));
  return near
    .sort()
    .slice(0, MAX_SHOWN)
    .map((other) => `${path === "/" ? "" : path}/${other}`);
}

function namesIn(folder: Descriptor): string[] {
  const names: string[] = [];
  try {
    const entries = fs.opendirSync(folder.path());
    try {
      for (let entry = entries.readSync(); entry !== null && names.length < MAX_COMPARED; entry = entries.readSync()) {
        // A name that no path can hold is not suggested.
        if (!/[\p{Cc}\\\ufffd]/u.test(entry.name)) names.push(entry.name);
      }
    } finally {
      entries.closeSync();
    }
  } catch (error) {
    // A directory that can be entered but not listed gives no suggestions.
    if (!(error instanceof Error && "syscall" in error)) throw error;
  }
  return names;
}

function isNear(wanted: string, other: string): boolean {
  return wanted === other || (stem(wanted).length > 1 && stem(wanted) === stem(other));
}

function folded(name: string): string {
  return name.normalize("NFKC").toLowerCase().replace(/[-_ ]/g, "");
}

function stem(name: string): string {
  const dot = name.indexOf(".", 1);
  return dot < 0 ? name : name.slice(0, dot);
}

/** The result of a walk. The descriptor only names the file: reopen it to read the content. */
export interface Found extends Disposable {
  readonly descriptor: Descriptor;
  readonly stats: fs.Stats;
  readonly type: EntryType;
  /** Its real place, after links. */
  readonly path: VirtualPath;
}

export interface Walk {
  readonly operation: FileOperation;
  readonly root: Root;
  /** Below the root; none is `.` or `..`. */
  readonly parts: readonly string[];
  /** With `refuse` no link is followed, and a link in the last component is itself the result. */
  readonly links: "follow" | "refuse";
  /** The path as the worker gave it. */
  readonly asked: VirtualPath;
}

/** The same as the kernel's own limit. */
const MAX_LINKS = 40;
/** A `..` in a link starts again at the mount, so the whole walk has a limit. */
const MAX_STEPS = 8192;

/**
 * Walks from the mount to the entry that `parts` name, one descriptor at a time, so that a rename by another process cannot
 * redirect a step. Links are resolved here, never by the system. A link that leaves the mount is refused; so is an absolute
 * one, since it means different places in a cell and on the host; or it starts again at the mount, if the root says so.
 */
export function walk({ operation, root, parts, links, asked }: Walk): Found {
  const ahead = parts.toReversed();
  let names: string[] = [];
  let current = root.descriptor.again();
  let stats = current.stat();
  let followed = 0;
  const moveTo = (next: Descriptor): void => {
    current[Symbol.dispose]();
    current = next;
  };
  try {
    for (let step = 0; ; step++) {
      const name = ahead.pop();
      if (name === undefined) break;
      if (step > MAX_STEPS) throw unfit(operation, asked, "the symbolic links in its path take too many steps.");
      if (name === "..") {
        if (names.pop() === undefined) throw leavesMount(operation, asked);
        ahead.push(...names.reverse());
        names = [];
        moveTo(root.descriptor.again());
        stats = current.stat();
        continue;
      }
      const next = nextStep(operation, current, name, ahead.length > 0, () => joined(root, names), asked);
      stats = next.stat();
      if (stats.isSymbolicLink() && (links === "follow" || ahead.length > 0)) {
        next[Symbol.dispose]();
        if (links === "refuse") throw throughLink(operation, asked, joinVirtual(joined(root, names), name));
        if (++followed > MAX_LINKS) throw unfit(operation, asked, "there are too many symbolic links in its path.");
        const { steps, isAbsolute } = stepsOfLink(operation, root, current, name, asked);
        ahead.push(...steps);
        if (isAbsolute) {
          names = [];
          moveTo(root.descriptor.again());
        }
        // A link to `.` adds no step: the result is the folder that holds it.
        stats = current.stat();
        continue;
      }
      moveTo(next);
      names.push(name);
      if (followed > 0) refuseHidden(operation, root, joined(root, names), asked);
    }
    const descriptor = current;
    const path = joined(root, names);
    return { descriptor, stats, type: typeOf(stats), path, [Symbol.dispose]: () => descriptor[Symbol.dispose]() };
  } catch (error) {
    current[Symbol.dispose]();
    throw error;
  }
}

export function typeOf(stats: fs.Stats | fs.Dirent<Buffer>): EntryType {
  if (stats.isFile()) return "file";
  if (stats.isDirectory()) return "directory";
  return stats.isSymbolicLink() ? "link" : "other";
}

export function throughLink(operation: FileOperation, asked: VirtualPath, link: VirtualPath): SandboxError {
  return unfit(operation, asked, `'${link}' is a symbolic link, and nothing is changed through links.`);
}

function nextStep(
  operation: FileOperation,
  folder: Descriptor,
  name: string,
  inner: boolean,
  path: () => VirtualPath,
  asked: VirtualPath,
): Descriptor {
  try {
    return folder.child(name, inner);
  } catch (error) {
    if (hasCode(error, "ENOENT"))
      throw new NotFoundError(asked, operation === "exists" ? [] : namesNear(folder, name, path()));
    if (!hasCode(error, "ENOTDIR") || !inner) throw error;
    // ENOTDIR means a link or a file in the place of a directory: a link is returned, a file is the error.
    const next = folder.child(name);
    if (next.stat().isSymbolicLink()) return next;
    next[Symbol.dispose]();
    throw error;
  }
}

/** The link may have been replaced: that is safe, since its text is only ever taken as steps. */
function stepsOfLink(
  operation: FileOperation,
  root: Root,
  folder: Descriptor,
  name: string,
  asked: VirtualPath,
): { readonly steps: string[]; readonly isAbsolute: boolean } {
  let text: string;
  try {
    text = fs.readlinkSync(folder.path(name));
  } catch (error) {
    // It is no longer a link, so the step is repeated.
    if (hasCode(error, "EINVAL")) return { steps: [name], isAbsolute: false };
    throw error;
  }
  const isAbsolute = text.startsWith("/");
  if (isAbsolute) {
    if (root.linkedAs === null)
      throw unfit(operation, asked, "a symbolic link in its path is absolute, and only relative links are followed.");
    const below = posix.relative(root.linkedAs, text);
    if (below === ".." || below.startsWith("../")) throw leavesMount(operation, asked);
    text = below;
  }
  const parts = text.split("/").filter((part) => part !== "" && part !== ".");
  return { steps: parts.reverse(), isAbsolute };
}

export function refuseHidden(operation: FileOperation, root: Root, path: VirtualPath, asked: VirtualPath): void {
  if (root.hidden.some((mount) => covers(mount, path))) throw leavesMount(operation, asked);
}

function leavesMount(operation: FileOperation, asked: VirtualPath): SandboxError {
  return new LinkLeavesError(operation, asked);
}

function joined(root: Root, names: readonly string[]): VirtualPath {
  return joinVirtual(root.path, names.join("/"));
}
