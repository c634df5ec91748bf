import type { ConsentNeed } from "../files/checked-access.ts";
import { guarded } from "../files/guarded.ts";
import { openHostFiles } from "../files/host/host-files.ts";
import { openMemoryFiles } from "../files/memory/memory-files.ts";
import { type Edit, type ListEntry, type ListOptions, MAX_WHOLE_BYTES } from "../files/model/files.ts";
import type { FileOperation } from "../files/model/refusals.ts";
import { governingMount } from "../sandbox/access.ts";
import { FileSystemError, PermissionError } from "../sandbox/errors.ts";
import type { Sandbox } from "../sandbox/sandbox.ts";
import { present } from "../text/present.ts";
import { FileSandbox } from "./file-sandbox.ts";

export interface OpenFilesOptions {
  /** `host`: the directories of the mounts. `memory`: empty directories in the memory of this process, gone when closed. */
  readonly backend: "host" | "memory";
  /** Decides on what the consent of a mount says must be asked (`ask`, also if it says nothing), and on what the host executes. Absent: refused. */
  readonly approve?: (request: FileApproval) => boolean | Promise<boolean>;
}

/** A change that needs consent. */
export interface FileApproval {
  readonly operation: "write" | "delete";
  readonly path: string;
  /** Why a program of the host would act on this file by itself. Absent: none would. */
  readonly hostExecuted?: string;
}

export interface WholeReadOptions {
  /** In bytes; absent, or more than it: 64 MiB. A larger file is refused. */
  readonly maxBytes?: number;
  readonly signal?: AbortSignal;
}

export interface FileWriteOptions {
  /** False: refuse if the file exists. Absent: true. */
  readonly overwrite?: boolean;
  readonly signal?: AbortSignal;
}

export interface OpenedFileInfo {
  readonly path: string;
  /** `link`: a link that was not followed. `other`: a FIFO, a socket or a device. */
  readonly type: "file" | "directory" | "link" | "other";
  /** In bytes; null for everything but files. */
  readonly size: number | null;
  readonly modifiedMs: number;
  readonly readable: boolean;
  /** True also if the user must agree first. */
  readonly writable: boolean;
}

export interface DirectoryListing {
  /** Sorted by path. */
  readonly entries: readonly ListEntry[];
  /** True if there is more than `entries`. */
  readonly truncated: boolean;
}

/**
 * The files of a sandbox, for a program: the checks, limits and refusals of the file tools, without a project and an Engine. A
 * refusal is thrown as a `SandboxError`. Other processes may change the directories at the same time: no operation follows a
 * link out of its mount, and a reader sees the old or the new content of a file that is written.
 */
export interface SandboxFiles extends Disposable {
  /** The whole content of a text file. Refused if it is not UTF-8. */
  read(path: string, options?: WholeReadOptions): Promise<string>;
  readBytes(path: string, options?: WholeReadOptions): Promise<Uint8Array>;
  /** Replaces the whole file at once, and makes the directories above it. Text is written as UTF-8. */
  write(
    path: string,
    content: string | Uint8Array,
    options?: FileWriteOptions,
  ): Promise<{ readonly bytes: number; readonly created: boolean }>;
  /** Replaces exact texts, each of which must be in the file once unless `all`. All of them, or none. */
  edit(path: string, edits: readonly Edit[]): Promise<{ readonly bytes: number; readonly replacements: number }>;
  /** Absent: the working directory of the sandbox. */
  list(path?: string, options?: Pick<ListOptions, "pattern" | "max" | "signal">): Promise<DirectoryListing>;
  info(path: string): Promise<OpenedFileInfo>;
  /** The virtual path after links, whose last components need not exist. Refused if a link leads out of its mount. */
  resolve(path: string): Promise<string>;
}

/** Opens the files of a sandbox. The directories stay open until the result is disposed of. */
export function openFiles(sandbox: FileSandbox | Sandbox, { backend, approve }: OpenFilesOptions): SandboxFiles {
  const data = sandbox instanceof FileSandbox ? sandbox.data : sandbox;
  const opened = BACKENDS[backend](data.mounts);
  const files = guarded(opened, data);
  const bytes = async (path: string, { maxBytes = MAX_WHOLE_BYTES, signal }: WholeReadOptions): Promise<Buffer> => {
    signal?.throwIfAborted();
    const content = await files.bytes(path, { maxBytes: Math.min(maxBytes, MAX_WHOLE_BYTES), signal });
    signal?.throwIfAborted();
    return content;
  };
  const agree = async (asked: FileOperation, raw: string): Promise<void> => {
    for (const need of files.needs(asked, raw)) {
      const mount = governingMount(data, need.path);
      const staged = backend === "host" && (mount?.stage === true || mount?.discard === true);
      const refusal = staged ? STAGED : await whyDenied(need, approve);
      if (refusal !== null) throw new PermissionError(need.path, need.operation, refusal);
    }
  };
  return {
    read: async (path, options = {}) => textOf(path, await bytes(path, options)),
    readBytes: (path, options = {}) => bytes(path, options),
    write: async (path, content, options = {}) => {
      options.signal?.throwIfAborted();
      await agree("write", path);
      options.signal?.throwIfAborted();
      return await files.write(path, content, options);
    },
    edit: async (path, edits) => {
      await agree("edit", path);
      const { bytes: size, replacements } = await files.edit(path, edits);
      return { bytes: size, replacements };
    },
    list: async (path, options = {}) => {
      options.signal?.throwIfAborted();
      const { entries, truncated } = await files.list(path, options);
      return { entries, truncated };
    },
    info: (path) => files.inspect(path),
    resolve: (path) => files.realPath(path),
    [Symbol.dispose]: () => opened[Symbol.dispose](),
  };
}

const BACKENDS = { host: openHostFiles, memory: openMemoryFiles };

const STAGED = "its changes are staged, which only a run of a project can do. Use `openProject`.";

/** What is blocked is refused by the operation itself. */
async function whyDenied(
  { operation, path, consent, hostExecuted }: ConsentNeed,
  approve: OpenFilesOptions["approve"],
): Promise<string | null> {
  const asked = { operation, path, ...present({ hostExecuted }) };
  if (consent !== "ask" || (await approve?.(asked)) === true) return null;
  const why = approve === undefined ? "it needs approval, and no `approve` was given" : "it was not approved";
  return `${why}. Declare the directory with \`approval\`, or approve the change.`;
}

function textOf(path: string, content: Buffer): string {
  try {
    return new TextDecoder("utf-8", { fatal: true, ignoreBOM: true }).decode(content);
  } catch (cause) {
    throw new FileSystemError(path, "read", "it is not UTF-8 text. Read its bytes.", { cause });
  }
}
