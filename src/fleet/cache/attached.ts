import { createHash } from "node:crypto";
import { type FileHandle, open } from "node:fs/promises";
import type { Job } from "../../run/model/job.ts";

/** The attachments of an item. */
export interface Attached {
  /** Names and content. */
  readonly digests: readonly (readonly [name: string, sha256: string])[];
  /** Changes with every change of one of the files. */
  readonly exact: string;
}

/** Null if one of them cannot be read. */
export async function attachedTo({ attachments }: Pick<Job, "attachments">): Promise<Attached | null> {
  const digests: [string, string][] = [];
  const exact: string[] = [];
  for (const { name, host, sent } of attachments) {
    try {
      if (sent !== undefined) {
        digests.push([name, sent.digest]);
        continue;
      }
      await using file = await open(host, NO_LINK_NO_WAITING);
      exact.push(await factsOf(file));
      digests.push([name, await contentOf(file)]);
    } catch {
      return null;
    }
  }
  return { digests, exact: exact.join("\n") };
}

/** {@link Attached.exact} as it is now. */
export async function exactlyAttached({ attachments }: Pick<Job, "attachments">): Promise<string | null> {
  const exact: string[] = [];
  for (const { host, sent } of attachments) {
    if (sent !== undefined) continue;
    try {
      await using file = await open(host, NO_LINK_NO_WAITING);
      exact.push(await factsOf(file));
    } catch {
      return null;
    }
  }
  return exact.join("\n");
}

async function factsOf(file: FileHandle): Promise<string> {
  const stats = await file.stat({ bigint: true });
  if (!stats.isFile()) throw new Error("no regular file");
  const { dev, ino, size, mtimeNs, ctimeNs } = stats;
  return `${dev} ${ino} ${size} ${mtimeNs} ${ctimeNs}`;
}

async function contentOf(file: FileHandle): Promise<string> {
  const hash = createHash("sha256");
  for await (const chunk of file.createReadStream({ autoClose: false })) hash.update(chunk as Buffer);
  return hash.digest("hex");
}

/** O_RDONLY | O_NOFOLLOW | O_NONBLOCK on Linux: a link is not followed, and a FIFO does not block. */
const NO_LINK_NO_WAITING = 0o400000 | 0o4000;
