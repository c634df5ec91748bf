import fs from "node:fs";
import { Descriptor } from "../../files/host/descriptor.ts";
import type { Change } from "../model/changeset.ts";
import { factsOf } from "../model/raw-name.ts";
import { isAsItWas } from "./standing.ts";
import { CONTENT_CHANGED, type Sides } from "./target.ts";
import { isVerdict, type Verdict } from "./verdict.ts";

/** What the run left under a name. It is only named: a file has to be reopened to be read. */
export interface Content extends Disposable {
  readonly descriptor: Descriptor;
  readonly uid: number;
  readonly gid: number;
  readonly mtimeNs: bigint;
}

/** Finds what a change brings, which must still be what was looked at: nothing that changed since is ever applied. */
export function openContent({ mount, parts, next }: Change, sides: Sides): Content | Verdict {
  const slot = sides.content(mount, parts);
  if (isVerdict(slot)) return slot;
  using _ = slot;
  let descriptor: Descriptor;
  try {
    descriptor = Descriptor.name(slot.folder.path(slot.name));
  } catch (error) {
    if ((error as NodeJS.ErrnoException).code === "ENOENT") return CONTENT_CHANGED;
    throw error;
  }
  const stats = fs.fstatSync(descriptor.fd, { bigint: true });
  if (next === null || !isAsItWas(next, factsOf(stats) ?? "other")) {
    descriptor[Symbol.dispose]();
    return CONTENT_CHANGED;
  }
  const [uid, gid] = [Number(stats.uid), Number(stats.gid)];
  return { descriptor, uid, gid, mtimeNs: stats.mtimeNs, [Symbol.dispose]: () => descriptor[Symbol.dispose]() };
}
