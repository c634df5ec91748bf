import fs from "node:fs";
import type { VirtualPath } from "../../sandbox/virtual-path.ts";
import type { Descriptor } from "./descriptor.ts";

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
