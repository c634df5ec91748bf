import posix from "node:path/posix";
import { type FileBackend, memoryBackend, openBackendFiles } from "../files/backend/backend-files.ts";
import type { ConsentNeed } from "../files/checked-access.ts";
import { type GuardedFiles, guarded } from "../files/guarded.ts";
import { openHostFiles } from "../files/host/host-files.ts";
import {
  type Deleted,
  type Edit,
  type Expected,
  type Files,
  type Intended,
  type ListEntry,
  type ListOptions,
  MAX_WHOLE_BYTES,
  type ReadOptions,
  type ReadResult,
  type Transferred,
  type Written,
} from "../files/model/files.ts";
import { type ConsentQuestion, consentQuestions } from "../files/questions.ts";
import { governingMount, isWritten, parsePathIn, select } from "../sandbox/access.ts";
import { FileSystemError, PathNotInSandboxError, PathNotWritableError, PermissionError } from "../sandbox/errors.ts";
import { expand } from "../sandbox/expand.ts";
import type { Sandbox } from "../sandbox/sandbox.ts";
import { isReserved, type VirtualPath } from "../sandbox/virtual-path.ts";
import { present } from "../text/present.ts";
import { FileSandbox, withRoots } from "./file-sandbox.ts";

export interface OpenFilesOptions {
  /**
   * `host`: the directories of the mounts. `memory`: empty directories in the memory of this process, gone when closed. Else a store of the
   * program's own, which is asked by the host paths of the mounts.
   */
  readonly backend: "host" | "memory" | FileBackend;
  /**
   * Decides on what the consent of a mount says must be asked (`ask`, also if it says nothing), and on what the host executes. Absent:
   * refused.
   */
  readonly approve?: (request: FileApproval) => boolean | Promise<boolean>;
  /** What may be asked for that the sandbox does not have. Absent: nothing. */
  readonly dynamic?: DynamicFiles;
}

export interface DynamicFiles {
  /** The most that can be granted: a directory that lies in it, with its mode and its constraints. */
  readonly from: FileSandbox | Sandbox;
  /** Decides on each. */
  readonly approve: (request: FileGrant) => FileGrantAnswer | Promise<FileGrantAnswer>;
  /** The most directories. Absent: 100. */
  readonly max?: number;
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
  /** What is not among them, and why; null if all is there. */
  readonly hint: string | null;
}

/**
 * The files of a sandbox, for a program: the checks, limits and refusals of the file tools, without a project and an Engine. A
 * refusal is thrown as a `SandboxError`. Other processes may change the directories at the same time: no operation follows a
 * link out of its mount, and a reader sees the old or the new content of a file that is written.
 */
export interface SandboxFiles extends Disposable {
  /** What they may do at this moment. */
  readonly sandbox: FileSandbox;
  /** The whole content of a text file. Refused if it is not UTF-8. */
  read(path: string, options?: WholeReadOptions): Promise<string>;
  readBytes(path: string, options?: WholeReadOptions): Promise<Uint8Array>;
  /** As much of it as a model takes, by lines or characters, and how to go on; or an image. */
  readPart(path: string, options?: ReadOptions): Promise<ReadResult>;
  /** Replaces the whole file at once, and makes the directories above it. Text is written as UTF-8. */
  write(path: string, content: string | Uint8Array, options?: FileWriteOptions): Promise<Written>;
  /** Makes the file if there is none. */
  append(path: string, content: string | Uint8Array, options?: Pick<FileWriteOptions, "signal">): Promise<Written>;
  /** Replaces exact texts, each of which must be in the file once unless `all`. All of them, or none. */
  edit(path: string, edits: readonly Edit[]): Promise<{ readonly bytes: number; readonly replacements: number }>;
  /** A file, an empty directory, or with `recursive` everything in it. Of a link, the link itself. */
  delete(path: string, options?: { readonly recursive?: boolean; readonly signal?: AbortSignal }): Promise<Deleted>;
  /** A file, or a directory with its content. Refused if `to` exists, unless `overwrite` replaces a file. */
  move(from: string, to: string, options?: FileWriteOptions): Promise<Transferred>;
  copy(from: string, to: string, options?: FileWriteOptions): Promise<Transferred>;
  mkdir(path: string): Promise<{ readonly created: boolean }>;
  /** False also for what `list` does not show. */
  exists(path: string): Promise<boolean>;
  /** Absent: the working directory of the sandbox. */
  list(path?: string, options?: Pick<ListOptions, "pattern" | "max" | "signal">): Promise<DirectoryListing>;
  info(path: string): Promise<OpenedFileInfo>;
  /** The virtual path after links, whose last components need not exist. Refused if a link leads out of its mount. */
  resolve(path: string): Promise<string>;
}

/** Opens the files of a sandbox. The directories stay open until the result is disposed of. */
export function openFiles(sandbox: FileSandbox | Sandbox, options: OpenFilesOptions): SandboxFiles {
  return new ProgramFiles(sandbox instanceof FileSandbox ? sandbox.data : sandbox, options);
}

/** The files of one sandbox, held open. */
interface Held {
  readonly sandbox: Sandbox;
  readonly opened: Files;
  readonly files: GuardedFiles;
}

class ProgramFiles implements SandboxFiles {
  readonly #options: OpenFilesOptions;
  readonly #open: (mounts: Sandbox["mounts"]) => Files;
  readonly #expansion: Expansion | null;
  /** Those that were replaced may still be in use. */
  readonly #all: Held[] = [];
  #held: Held;

  constructor(sandbox: Sandbox, options: OpenFilesOptions) {
    const { backend, dynamic } = options;
    const store = backend === "memory" ? memoryBackend() : backend;
    this.#options = options;
    this.#open = (mounts) =>
      store === "host" ? openHostFiles(mounts, { absoluteLinks: true }) : openBackendFiles(store, mounts);
    this.#held = this.#hold(sandbox);
    this.#expansion = dynamic === undefined ? null : this.#expanding(dynamic);
  }

  get sandbox(): FileSandbox {
    return new FileSandbox(this.#held.sandbox);
  }

  async read(path: string, options: WholeReadOptions = {}): Promise<string> {
    return decodedText(path, await this.#bytes(path, options));
  }

  async readBytes(path: string, options: WholeReadOptions = {}): Promise<Uint8Array> {
    return await this.#bytes(path, options);
  }

  async readPart(path: string, options: ReadOptions = {}): Promise<ReadResult> {
    return await this.#within({ [path]: "read" }, options.signal, ({ files }) => files.read(path, options));
  }

  async write(path: string, content: string | Uint8Array, options: FileWriteOptions = {}): Promise<Written> {
    const intended = { operation: "write", path, content, ...present({ overwrite: options.overwrite }) } as const;
    return await this.#changing(intended, options, (files, how) => files.write(path, content, how));
  }

  async append(
    path: string,
    content: string | Uint8Array,
    options: Pick<FileWriteOptions, "signal"> = {},
  ): Promise<Written> {
    const intended = { operation: "append", path, content } as const;
    return await this.#changing(intended, options, (files, how) => files.append(path, content, how));
  }

  async edit(path: string, edits: readonly Edit[]) {
    const edited = await this.#changing({ operation: "edit", path, edits }, {}, (files, how) =>
      files.edit(path, edits, how),
    );
    return { bytes: edited.bytes, replacements: edited.replacements };
  }

  async delete(path: string, options: { readonly recursive?: boolean; readonly signal?: AbortSignal } = {}) {
    const intended = { operation: "delete", path, ...present({ recursive: options.recursive }) } as const;
    return await this.#changing(intended, options, (files, how) => files.delete(path, how));
  }

  async move(from: string, to: string, options: FileWriteOptions = {}): Promise<Transferred> {
    const intended = { operation: "move", path: from, to, ...present({ overwrite: options.overwrite }) } as const;
    return await this.#changing(intended, options, (files, how) => files.move(from, to, how));
  }

  async copy(from: string, to: string, options: FileWriteOptions = {}): Promise<Transferred> {
    const intended = { operation: "copy", path: from, to, ...present({ overwrite: options.overwrite }) } as const;
    return await this.#changing(intended, options, (files, how) => files.copy(from, to, how));
  }

  async mkdir(path: string): Promise<{ readonly created: boolean }> {
    return await this.#within({ [path]: "write" }, undefined, async ({ sandbox, files }) => {
      const needs = files.needs("mkdir", path);
      this.#refuseStaged(sandbox, needs);
      for (const { operation, path: at, consent, hostExecuted: why } of needs) {
        const apart = why === undefined ? [] : [{ path: at, why }];
        if (consent === "ask")
          await this.#agree({ operation, path: at, ofMount: apart.length === 0, hostExecuted: apart });
      }
      return await files.mkdir(path);
    });
  }

  async exists(path: string): Promise<boolean> {
    return await this.#within({ [path]: "read" }, undefined, ({ files }) => files.exists(path));
  }

  async list(path = ".", options: Pick<ListOptions, "pattern" | "max" | "signal"> = {}): Promise<DirectoryListing> {
    const listed = await this.#within({ [path]: "read" }, options.signal, ({ files }) => files.list(path, options));
    return { entries: listed.entries, truncated: listed.truncated, hint: listed.hint };
  }

  async info(path: string): Promise<OpenedFileInfo> {
    return await this.#within({ [path]: "read" }, undefined, ({ files }) => files.inspect(path));
  }

  async resolve(path: string): Promise<string> {
    return await this.#within({ [path]: "read" }, undefined, ({ files }) => files.realPath(path));
  }

  [Symbol.dispose](): void {
    for (const { opened } of this.#all) opened[Symbol.dispose]();
  }

  #expanding({ from, approve, max = MAX_GRANTS }: DynamicFiles): Expansion {
    const data = from instanceof FileSandbox ? from.data : from;
    return new Expansion(data, this.#hold(data).files, approve, max);
  }

  #hold(sandbox: Sandbox): Held {
    const opened = this.#open(sandbox.mounts);
    const held = { sandbox, opened, files: guarded(opened, sandbox) };
    this.#all.push(held);
    return held;
  }

  async #bytes(path: string, { maxBytes = MAX_WHOLE_BYTES, signal }: WholeReadOptions): Promise<Buffer> {
    const how = { maxBytes: Math.min(maxBytes, MAX_WHOLE_BYTES), signal };
    const content = await this.#within({ [path]: "read" }, signal, ({ files }) => files.bytes(path, how));
    signal?.throwIfAborted();
    return content;
  }

  /** `needs`: the access that each path of the operation needs. */
  async #within<T>(
    needs: Readonly<Record<string, "read" | "write">>,
    signal: AbortSignal | undefined,
    work: (held: Held) => Promise<T>,
  ): Promise<T> {
    let held = this.#held;
    for (;;) {
      signal?.throwIfAborted();
      try {
        return await work(held);
      } catch (error) {
        const wider = (await this.#expansion?.after(error, held.sandbox, needs)) ?? null;
        if (wider === null) throw withRoots(error, held.sandbox);
        held = this.#hold(wider.sandbox);
        if (wider.lasts) this.#held = held;
      }
    }
  }

  async #changing<Result, Options extends { readonly signal?: AbortSignal }>(
    intended: Intended,
    options: Options,
    change: (files: GuardedFiles, how: Options & { readonly expected?: Expected }) => Promise<Result>,
  ): Promise<Result> {
    const { signal } = options;
    const { operation, path } = intended;
    const needs = "to" in intended ? { [path]: operation === "copy" ? "read" : "write", [intended.to]: "write" } : {};
    const paths = { [path]: "write", ...needs } as Readonly<Record<string, "read" | "write">>;
    return await this.#within(paths, signal, async ({ sandbox, files }) => {
      this.#refuseStaged(sandbox, files.needs(operation, path, "to" in intended ? intended.to : undefined));
      const asking = await consentQuestions(intended, files, signal);
      for (const question of asking?.questions ?? []) await this.#agree(question);
      signal?.throwIfAborted();
      return await change(files, { ...options, ...present({ expected: asking?.foreseen.expected }) });
    });
  }

  async #agree({ operation, path, ofMount, hostExecuted }: ConsentQuestion): Promise<void> {
    const { approve } = this.#options;
    const asked: FileApproval[] = [
      ...(ofMount ? [{ operation, path }] : []),
      ...hostExecuted.map((one) => ({ operation, path: one.path, hostExecuted: one.why })),
    ];
    for (const one of asked) {
      if ((await approve?.(one)) === true) continue;
      const why = approve === undefined ? "it needs approval, and no `approve` was given" : "it was not approved";
      const instead = "Declare the directory with `approval`, or approve the change.";
      throw new PermissionError(one.path, one.operation, `${why}. ${instead}`);
    }
  }

  /** What is staged can only be written in memory, where nothing is applied. */
  #refuseStaged(sandbox: Sandbox, needs: readonly ConsentNeed[]): void {
    if (this.#options.backend === "memory") return;
    for (const { path, operation } of needs) {
      const mount = governingMount(sandbox, path);
      if (mount?.stage || mount?.discard) throw new PermissionError(path, operation, STAGED);
    }
  }
}

const MAX_GRANTS = 100;

const STAGED = "its changes are staged, which only a run of a project can do. Use `openProject`.";

function decodedText(path: string, content: Buffer): string {
  try {
    return new TextDecoder("utf-8", { fatal: true, ignoreBOM: true }).decode(content);
  } catch (cause) {
    throw new FileSystemError(path, "read", "it is not UTF-8 text. Read its bytes.", { cause });
  }
}

/** A directory that an operation needs and the sandbox does not have, or has for reading only. */
export interface FileGrant {
  readonly operation: "grant_read" | "grant_write";
  /** The directory. What lies below it is granted too. */
  readonly path: string;
}

/** `once`: a directory is granted for one operation, and not until the files are closed. */
export type FileGrantAnswer = boolean | "once";

/** Widens a sandbox by directories of another one, each after a question. It gives nothing that the other does not have. */
class Expansion {
  readonly #from: Sandbox;
  readonly #files: GuardedFiles;
  readonly #approve: (request: FileGrant) => FileGrantAnswer | Promise<FileGrantAnswer>;
  readonly #max: number;
  #granted = 0;

  /** `files`: those of `from`. */
  constructor(
    from: Sandbox,
    files: GuardedFiles,
    approve: (request: FileGrant) => FileGrantAnswer | Promise<FileGrantAnswer>,
    max: number,
  ) {
    this.#from = from;
    this.#files = files;
    this.#approve = approve;
    this.#max = max;
  }

  /** After a refusal: the sandbox in which the operation is tried again. Null: the refusal stands. */
  async after(
    error: unknown,
    sandbox: Sandbox,
    needs: Readonly<Record<string, "read" | "write">>,
  ): Promise<{ readonly sandbox: Sandbox; readonly lasts: boolean } | null> {
    if (!(error instanceof PathNotInSandboxError || error instanceof PathNotWritableError)) return null;
    for (const [raw, mode] of Object.entries(needs)) {
      const parsed = parsePathIn(sandbox, raw);
      if (!parsed.ok || parsed.path !== error.path) continue;
      const path = await this.#directoryOf(parsed.path, mode);
      if (path === null || this.#granted >= this.#max || isReserved(path, sandbox)) return null;
      const grant = {
        id: `granted-${this.#granted + 1}`,
        path,
        mode,
        by: "approval",
        source: select(this.#from, path),
      };
      const wider = expand(sandbox, grant);
      if (!allows(wider, parsed.path, mode) || allows(sandbox, parsed.path, mode)) return null;
      const answer = await this.#approve({ operation: `grant_${mode}`, path });
      // A program may be plain JavaScript: nothing else is an approval.
      if (answer !== true && answer !== "once") return null;
      this.#granted += 1;
      return { sandbox: wider, lasts: answer === true };
    }
    return null;
  }

  /** Where the source shows nothing, the disk is not looked at: a refusal says nothing of what else is there. */
  async #directoryOf(path: VirtualPath, mode: "read" | "write"): Promise<VirtualPath | null> {
    if (!allows(this.#from, path, mode)) return null;
    for (let place = path; ; place = posix.dirname(place) as VirtualPath) {
      const info = await this.#files.stat(place).catch(() => null);
      const around = posix.dirname(place) as VirtualPath;
      if (info?.type === "directory" || around === place || !allows(this.#from, around, mode)) return place;
    }
  }
}

function allows(sandbox: Sandbox, path: VirtualPath, mode: "read" | "write"): boolean {
  const mount = governingMount(sandbox, path);
  return mode === "write" ? isWritten(mount) : mount !== undefined;
}
