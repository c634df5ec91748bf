import fs from "node:fs";
import { contentOf } from "../../files/host/content.ts";
import { copyContent } from "../../files/host/copy-content.ts";
import { Descriptor } from "../../files/host/descriptor.ts";
import type { EntryFacts } from "../model/changeset.ts";
import type { Content } from "./content.ts";
import { dress, inodeOf, type Made } from "./made.ts";
import { CONTENT_CHANGED } from "./target.ts";
import type { Verdict } from "./verdict.ts";

/** A copy of the run's file, with its time of change. Nobody else can read it before it is whole. */
export async function makeFile(
  next: EntryFacts,
  content: Content,
  folder: Descriptor,
  temporary: string,
  signal?: AbortSignal,
): Promise<Made | Verdict> {
  using from = content.descriptor.reopen(fs.constants.O_RDONLY);
  const { O_WRONLY, O_CREAT, O_EXCL, O_NOFOLLOW } = fs.constants;
  const file = new Descriptor(fs.openSync(folder.path(temporary), O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW, 0o600));
  try {
    const source = contentOf(from);
    const copied = await copyContent(source, file, signal);
    if (source.changed() || copied !== next.size) {
      file[Symbol.dispose]();
      return CONTENT_CHANGED;
    }
    dress(file, content, next.mode);
    const seconds = Number(content.mtimeNs) / 1e9;
    fs.futimesSync(file.fd, seconds, seconds);
    return { inode: inodeOf(file), descriptor: file, unsynced: true };
  } catch (error) {
    file[Symbol.dispose]();
    throw error;
  }
}
