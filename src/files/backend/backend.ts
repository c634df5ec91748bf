import { basename, dirname } from "node:path/posix";
import { hasCode } from "../../platform/errno.ts";
import { formatBytes } from "../../text/amounts.ts";
import { MAX_MEMORY_BYTES } from "../model/files.ts";

/**
 * Where the files of a sandbox are, if not in the directories of this host: any store with these operations. Each path is absolute and
 * normal, and is one of a mount's `host` or below it. An error with a `code` and a `syscall`, as Node's are, becomes a refusal in words.
 *
 * What a link means is the store's own: only the host's files are guarded against links that lead out.
 */
export interface FileBackend {
  /** Rejects for a directory, and if nothing is there. */
  read(path: string): Promise<string | Uint8Array>;
  /** The directory of the file exists. */
  write(path: string, content: string | Uint8Array): Promise<void>;
  /** A file, or a directory with nothing in it. */
  delete(path: string): Promise<void>;
  exists(path: string): Promise<boolean>;
  /** The names in a directory. */
  list(path: string): Promise<readonly string[]>;
  /** With the directories above it. */
  mkdir(path: string): Promise<void>;
  /** Null if nothing is there. Absent: it is found out by reading. */
  stat?(path: string): Promise<BackendEntry | null>;
}

export interface BackendEntry {
  readonly type: "file" | "directory";
  /** In bytes; of a directory it does not matter. */
  readonly size: number;
  /** Absent: not known. */
  readonly modifiedMs?: number;
}

interface MemoryEntry {
  /** The names in it; null for a file. */
  readonly names: Set<string> | null;
  readonly content: Buffer;
  readonly modifiedMs: number;
}

/** Files in the memory of this process, with content of at most `MAX_MEMORY_BYTES`. */
export function memoryBackend(): FileBackend {
  const entries = new Map<string, MemoryEntry>();
  let held = 0;
  const put = (path: string, names: Set<string> | null, content: Buffer): void => {
    entries.set(path, { names, content, modifiedMs: Date.now() });
    if (path !== "/") entries.get(dirname(path))?.names?.add(basename(path));
  };
  return {
    async read(path) {
      const found = entries.get(path);
      if (found === undefined || found.names !== null) throw failure(found === undefined ? "ENOENT" : "EISDIR");
      return Buffer.from(found.content);
    },
    async write(path, given) {
      const content = Buffer.from(given);
      const grown = held + content.length - (entries.get(path)?.content.length ?? 0);
      if (grown > MAX_MEMORY_BYTES) throw new MemoryFullError();
      held = grown;
      put(path, null, content);
    },
    async delete(path) {
      held -= entries.get(path)?.content.length ?? 0;
      entries.delete(path);
      entries.get(dirname(path))?.names?.delete(basename(path));
    },
    exists: async (path) => entries.has(path),
    list: async (path) => [...(entries.get(path)?.names ?? [])],
    async mkdir(path) {
      const missing: string[] = [];
      for (let at = path; !entries.has(at); at = dirname(at)) {
        missing.push(at);
        if (at === "/") break;
      }
      for (const at of missing.reverse()) put(at, new Set(), NO_CONTENT);
    },
    async stat(path) {
      const found = entries.get(path);
      if (found === undefined) return null;
      const { names, content, modifiedMs } = found;
      return { type: names === null ? "file" : "directory", size: content.length, modifiedMs };
    },
  };
}

const NO_CONTENT = Buffer.alloc(0);

/** As Node's own errors are. */
function failure(code: "EISDIR" | "ENOENT"): Error {
  return Object.assign(new Error(code), { code, syscall: "memory" });
}

export class MemoryFullError extends Error {
  constructor() {
    super(`the files in memory would hold more than ${formatBytes(MAX_MEMORY_BYTES)}. Write less, or delete files.`);
  }
}

/** What is at a path of a store that cannot say it itself. */
export async function entryByReading(backend: FileBackend, path: string): Promise<BackendEntry | null> {
  if (!(await backend.exists(path))) return null;
  try {
    return { type: "file", size: Buffer.from(await backend.read(path)).length };
  } catch (error) {
    if (hasCode(error, "ENOENT")) return null;
    await backend.list(path);
    return { type: "directory", size: 0 };
  }
}
