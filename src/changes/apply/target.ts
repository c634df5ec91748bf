import fs from "node:fs";
import type { Descriptor } from "../../files/host/descriptor.ts";
import { pinned } from "../../files/host/roots.ts";
import type { Changeset } from "../model/changeset.ts";
import { mountIdOf } from "../view/mount-id.ts";
import { conflict, refused, type Verdict } from "./verdict.ts";

/** The folder in which something is changed, held open, and the name in it. */
export interface Slot extends Disposable {
  readonly folder: Descriptor;
  readonly name: string;
}

/** The directories of a changeset, held open: what receives the changes, and where their content stands. */
export class Sides implements Disposable {
  readonly #sides: readonly { readonly target: Descriptor | null; readonly content: Descriptor | null }[];

  constructor({ mounts }: Pick<Changeset, "mounts">) {
    this.#sides = mounts.map((mount) => ({
      target: identified(mount.target, mount.targetIdentity),
      content: pinned(mount.content),
    }));
  }

  /** Opens the folder of a change in the real directory. */
  target(mount: number, parts: readonly string[]): Slot | Verdict {
    const root = this.#sides[mount]?.target ?? null;
    return root === null ? refused("its directory is not the one that it was when the run began") : open(root, parts);
  }

  /** Opens the folder of a change in the run's own version. */
  content(mount: number, parts: readonly string[]): Slot | Verdict {
    const root = this.#sides[mount]?.content ?? null;
    const slot = root === null ? CONTENT_CHANGED : open(root, parts);
    return "folder" in slot ? slot : CONTENT_CHANGED;
  }

  [Symbol.dispose](): void {
    for (const { target, content } of this.#sides) {
      target?.[Symbol.dispose]();
      content?.[Symbol.dispose]();
    }
  }
}

/** What is applied is what was looked at, or nothing. */
export const CONTENT_CHANGED: Verdict = refused("what the run left there was changed after it had been looked at");

function identified(host: string, identity: string): Descriptor | null {
  const found = pinned(host);
  if (found === null) return null;
  const stats = fs.fstatSync(found.fd, { bigint: true });
  if (stats.isDirectory() && `${stats.dev}:${stats.ino}` === identity) return found;
  found[Symbol.dispose]();
  return null;
}

/** A descriptor at a time, through no link, and onto no other file system: a run has not seen what is mounted there. */
function open(root: Descriptor, parts: readonly string[]): Slot | Verdict {
  const mount = mountIdOf(root);
  let current = root.again();
  try {
    for (const part of parts.slice(0, -1)) {
      const next = current.child(part, true);
      current[Symbol.dispose]();
      current = next;
      if (mountIdOf(current) !== mount) {
        current[Symbol.dispose]();
        return refused("another file system is mounted there");
      }
    }
  } catch (error) {
    current[Symbol.dispose]();
    const { code } = error as NodeJS.ErrnoException;
    if (code === "ENOENT") return conflict("the directory that it is in is not there");
    if (code === "ENOTDIR") return refused("a link or a file stands in the place of a directory that it is in");
    throw error;
  }
  const folder = current;
  return { folder, name: parts.at(-1) ?? "", [Symbol.dispose]: () => folder[Symbol.dispose]() };
}
