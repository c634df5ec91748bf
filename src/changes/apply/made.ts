import fs from "node:fs";
import type { Descriptor } from "../../files/host/descriptor.ts";
import type { Content } from "./content.ts";
import { refused, type Verdict } from "./verdict.ts";

/** Something whole under a temporary name, beside the place that it is to take. */
export interface Made {
  readonly inode: string;
  /** Held open until it is in its place: whatever is put there instead has another inode. */
  readonly descriptor: Descriptor;
  /** True where it has content that has to reach the disk first. */
  readonly unsynced: boolean;
}

/** Others can write in the folder as well: what is not certainly our own is neither given away nor put in place. */
export const NOT_OURS: Verdict = refused("somebody put something in the place of its temporary file");

/** Owner and permission bits, never the right to run as somebody else. Only root can give files away. */
export function dress(made: Descriptor, { uid, gid }: Content, mode: number): void {
  if (isRoot()) fs.fchownSync(made.fd, uid, gid);
  fs.fchmodSync(made.fd, mode & 0o777);
}

export function isRoot(): boolean {
  return process.geteuid?.() === 0;
}

export function inodeOf({ fd }: Descriptor): string {
  return String(fs.fstatSync(fd, { bigint: true }).ino);
}
