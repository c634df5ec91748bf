import posix from "node:path/posix";
import type { GuardedFiles } from "../files/guarded.ts";
import { governingMount, isWritten, parsePathIn, select } from "../sandbox/access.ts";
import { PathNotInSandboxError, PathNotWritableError } from "../sandbox/errors.ts";
import { expand } from "../sandbox/expand.ts";
import type { Sandbox } from "../sandbox/sandbox.ts";
import { isReserved, type VirtualPath } from "../sandbox/virtual-path.ts";

/** A directory that an operation needs and the sandbox does not have, or has for reading only. */
export interface FileGrant {
  readonly operation: "grant_read" | "grant_write";
  /** The directory. What lies below it is granted too. */
  readonly path: string;
}

/** `once`: a directory is granted for one operation, and not until the files are closed. */
export type FileGrantAnswer = boolean | "once";

/** Widens a sandbox by directories of another one, each after a question. It gives nothing that the other does not have. */
export class Expansion {
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
