import { posix } from "node:path";
import type { Files } from "../../files/files.ts";
import { type GuardedFiles, guarded } from "../../files/guarded.ts";
import { openHostFiles } from "../../files/host/host-files.ts";
import { OUTPUT_PATH } from "../../isolation/plan.ts";
import type { Mount } from "../../sandbox/mount.ts";
import type { Sandbox } from "../../sandbox/sandbox.ts";
import { canonicalMounts } from "../../sandbox/select.ts";
import type { VirtualPath } from "../../sandbox/virtual-path.ts";
import type { OutputDir } from "./output-dir.ts";

/** The files of one sandbox for tools, held open: what it grants, and once there is any, the long output of commands. */
export class SandboxFiles implements Disposable {
  readonly #output: OutputDir;
  readonly #hostFiles: Files;
  readonly #granted: GuardedFiles;
  readonly #withOutput: GuardedFiles;

  constructor(sandbox: Sandbox, output: OutputDir) {
    const shown = withOutput(sandbox, output.path);
    this.#output = output;
    this.#hostFiles = openHostFiles(shown.mounts);
    this.#granted = guarded(this.#hostFiles, sandbox);
    this.#withOutput = guarded(this.#hostFiles, shown);
  }

  get guarded(): GuardedFiles {
    return this.#output.isUsed ? this.#withOutput : this.#granted;
  }

  [Symbol.dispose](): void {
    this.#hostFiles[Symbol.dispose]();
  }
}

/** The sandbox with one directory more, which only Corral writes: the whole of what commands printed. */
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
