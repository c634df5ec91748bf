import { basename, relative } from "node:path";
import { type Document, isMap } from "yaml";
import { mountNameFault } from "../../../declarations/terms/names.ts";
import type { Mode } from "../../model/grant.ts";
import { put } from "./edited-yaml.ts";

export interface ProjectFile {
  /** Absolute. */
  readonly dir: string;
  /** As a person knows it. */
  readonly file: string;
  /** Null if there is none. */
  readonly text: string | null;
}

/** The names under which a project would have further host directories, and how its file is changed for that. */
export class ProjectAdditions {
  readonly #dir: string;
  readonly #document: Document | null;
  /** Of the places that were added. */
  readonly #added = new Map<string, { readonly name: string; readonly mode: Mode }>();

  constructor(dir: string, document: Document | null) {
    this.#dir = dir;
    this.#document = document;
  }

  /** True if a worker may have host directories of its own that the project does not give. */
  get leavesPathsToWorkers(): boolean {
    const document = this.#document;
    if (document === null || !document.hasIn(["sandbox"])) return true;
    return document.getIn(["sandbox", "own_paths"]) === "allowed";
  }

  /** The name of a host directory that the project would have at this place; null if its form has no place for one. */
  nameFor({ host, directory, mode }: { host: string; directory: string; mode: Mode }): string | null {
    const document = this.#document;
    const form = document === null ? null : formOf(document);
    if (document === null || form === null) return null;
    // With a sandbox of its own it would be the ceiling of all workers' paths.
    if (!document.hasIn(["sandbox"])) put(document, ["sandbox", "own_paths"], "allowed");
    const known = this.#added.get(directory);
    const name = known?.name ?? freeName(host, namesIn(document, form));
    const strongest = known?.mode === "write" ? "write" : mode;
    this.#added.set(directory, { name, mode: strongest });
    const root = hostText(this.#dir, host);
    const place = { ...(form === "zones" ? { path: root } : { root }), ...placeText(name, directory) };
    const entry = strongest === "write" ? { ...place, mode: "rw", approval: WITHOUT_QUESTION } : place;
    put(document, ["sandbox", form, name], entry);
    return name;
  }
}

/** As writing was granted: without a question for each file. */
export const WITHOUT_QUESTION = { write: "pre_approved" };

/** The same path must lead there as in the run that was granted it. */
export function placeText(name: string, directory: string): { readonly at?: string } {
  return directory === `/${name}` ? {} : { at: directory };
}

/** Zones in one common folder, and a root that is everything, have no place for a folder elsewhere. */
function formOf(document: Document): "zones" | "paths" | null {
  if (!isMap(document.getIn(["sandbox"]))) return document.hasIn(["sandbox"]) ? null : "paths";
  if (document.hasIn(["sandbox", "paths"])) return "paths";
  return document.getIn(["sandbox", "mode"]) === "direct" && document.hasIn(["sandbox", "zones"]) ? "zones" : null;
}

function namesIn(document: Document, form: "zones" | "paths"): string[] {
  const map = document.getIn(["sandbox", form]);
  return isMap(map) ? Object.keys(map.toJS(document) as object) : [];
}

/** The folder's own name, as far as it can be one. */
export function freeName(host: string, taken: readonly string[]): string {
  const plain = basename(host)
    .replace(/[^A-Za-z0-9._-]/g, "-")
    .replace(/^\.+/, "")
    .slice(0, 60);
  const fit = mountNameFault(plain) === null ? plain : `files-${plain}`;
  const first = mountNameFault(fit) === null ? fit : "files";
  for (let count = 1; ; count += 1) {
    const name = count === 1 ? first : `${first}-${count}`;
    if (!taken.includes(name)) return name;
  }
}

/** A host directory as a project's files name it: relative to the project. */
export function hostText(projectDir: string, host: string): string {
  const text = relative(projectDir, host);
  if (text === "") return ".";
  return text.startsWith("..") ? text : `./${text}`;
}
