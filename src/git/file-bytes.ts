import { CheckedAccess } from "../files/checked-access.ts";
import { contentOf } from "../files/host/content.ts";
import { openRegular } from "../files/host/read.ts";
import { openRoots, type Roots } from "../files/host/roots.ts";
import { walk } from "../files/host/walk.ts";
import { unfit, withRefusals } from "../files/model/refusals.ts";
import { readAll } from "../files/read/byte-source.ts";
import { NotFoundError } from "../sandbox/errors.ts";
import type { Sandbox } from "../sandbox/sandbox.ts";
import type { VirtualPath } from "../sandbox/virtual-path.ts";

/**
 * Reads a worker's files as bytes, with the checks of every other file operation. No link is followed, so that a worker cannot
 * choose another file for the repository.
 */
export class FileBytes implements Disposable {
  readonly #access: CheckedAccess;
  readonly #roots: Roots;

  constructor(sandbox: Sandbox) {
    this.#access = new CheckedAccess(sandbox);
    this.#roots = openRoots(sandbox.mounts);
  }

  /** Null if it does not exist. Throws `SandboxError` if it may not be read, or is not a regular file. */
  async read(path: VirtualPath, maxBytes: number, signal: AbortSignal): Promise<Buffer | null> {
    signal.throwIfAborted();
    const place = this.#access.toRead(path);
    try {
      return await withRefusals("read", path, async () => {
        const root = this.#roots.get("read", place.mount);
        using found = walk({ operation: "read", root, parts: place.parts, links: "refuse", asked: path });
        using file = openRegular("read", place, found);
        const source = contentOf(file);
        this.#access.checks.read?.(found.path, source.size);
        if (source.size > maxBytes) throw unfit("read", path, `it is larger than ${maxBytes} bytes.`);
        return await readAll(source);
      });
    } catch (error) {
      if (error instanceof NotFoundError) return null;
      throw error;
    }
  }

  [Symbol.dispose](): void {
    this.#roots[Symbol.dispose]();
  }
}
