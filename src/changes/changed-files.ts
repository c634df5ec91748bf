import fs from "node:fs";
import { OpenMounts, openContent } from "./apply/open-mounts.ts";
import { isVerdict } from "./apply/verdict.ts";
import type { Change, Changeset } from "./model/changeset.ts";

/** A regular file or a directory that a changeset brings. */
export interface ChangedFile extends Pick<Change, "index" | "path"> {
  readonly type: "file" | "directory";
  /** In bytes; 0 for a directory. */
  readonly bytes: number;
  /** Permission bits. */
  readonly mode: number;
  /** Exactly `bytes` bytes, or it fails. It must be read before the next file is asked for. */
  readonly content: AsyncIterable<Buffer>;
}

const PIECE_BYTES = 256 * 1024;

/**
 * Files and directories that a changeset writes, in its order. Links are left out: who unpacks them would follow them. So is
 * what must not be applied, and content that was changed after it had been checked.
 */
export async function* changedFiles(changeset: Changeset): AsyncGenerator<ChangedFile, void, undefined> {
  using mounts = new OpenMounts(changeset);
  for (const change of changeset.changes) {
    const { index, path, kind, type, next, refusal } = change;
    if (kind === "delete" || type === "link" || next === null || refusal !== null) continue;
    const mode = next.mode & 0o777;
    if (type === "directory") {
      yield { index, path, type, bytes: 0, mode, content: pieces(null, 0) };
      continue;
    }
    const content = openContent(change, mounts);
    if (isVerdict(content)) continue;
    using _ = content;
    using file = content.descriptor.reopen(fs.constants.O_RDONLY);
    yield { index, path, type, bytes: next.size, mode, content: pieces(file.fd, next.size) };
  }
}

async function* pieces(fd: number | null, bytes: number): AsyncGenerator<Buffer, void, undefined> {
  for (let at = 0; fd !== null && at < bytes; ) {
    const piece = Buffer.alloc(Math.min(PIECE_BYTES, bytes - at));
    const length = fs.readSync(fd, piece, 0, piece.length, at);
    if (length === 0) throw new Error("the file became shorter while it was read");
    at += length;
    yield piece.subarray(0, length);
  }
}
