import { posix } from "node:path";
import { boundedWrites, type GuardedFiles, guarded } from "../../files/guarded.ts";
import { openHostFiles } from "../../files/host/host-files.ts";
import type { Files, Hidden } from "../../files/model/files.ts";
import { ATTACHMENTS_PATH, OUTPUT_PATH } from "../../isolation/plan/plan.ts";
import { canonicalMounts } from "../../sandbox/access.ts";
import type { Mount } from "../../sandbox/mount.ts";
import type { Sandbox } from "../../sandbox/sandbox.ts";
import type { VirtualPath } from "../../sandbox/virtual-path.ts";
import type { Attachment } from "../model/job.ts";
import type { OutputDir } from "./output-dir.ts";
import type { WriteRoom } from "./write-room.ts";

/**
 * The files of one sandbox for tools, held open: what it grants, the run's attachments, and the long output of commands
 * if there is any.
 */
export class SandboxFiles implements Disposable {
  readonly #output: OutputDir;
  readonly #hostFiles: Files;
  readonly #granted: GuardedFiles;
  readonly #withOutput: GuardedFiles;

  constructor(
    sandbox: Sandbox,
    attachments: readonly Attachment[],
    output: OutputDir,
    room: WriteRoom,
    hidden: Hidden,
  ) {
    const attached = attachments.map(attachmentMount);
    const granted = { ...sandbox, mounts: [...sandbox.mounts, ...attached] };
    const shown = withOutput(granted, output.path);
    this.#output = output;
    this.#hostFiles = openHostFiles(shown.mounts);
    const files = boundedWrites(this.#hostFiles, room.maxBytes);
    this.#granted = room.holding(guarded(files, attached.length === 0 ? sandbox : granted, hidden));
    this.#withOutput = room.holding(guarded(files, shown, hidden));
  }

  get guarded(): GuardedFiles {
    return this.#output.isUsed ? this.#withOutput : this.#granted;
  }

  [Symbol.dispose](): void {
    this.#hostFiles[Symbol.dispose]();
  }
}

/** A single file, as in a cell; it must still be the one that the caller was given. */
function attachmentMount({ name, host, identity }: Attachment): Mount & { readonly identity?: string } {
  return {
    name,
    path: posix.join(ATTACHMENTS_PATH, name) as VirtualPath,
    host,
    mode: "ro",
    approval: { write: "blocked", delete: "blocked" },
    ...(identity === undefined ? {} : { identity }),
  };
}

/** The sandbox with one more directory, which only Corral writes: the whole output of commands. */
function withOutput(sandbox: Sandbox, host: string): Sandbox {
  const mount: Mount = {
    name: ".corral",
    path: posix.normalize(OUTPUT_PATH) as VirtualPath,
    host,
    mode: "ro",
    approval: { write: "blocked", delete: "blocked" },
  };
  return { ...sandbox, mounts: canonicalMounts([...sandbox.mounts, mount]) };
}
