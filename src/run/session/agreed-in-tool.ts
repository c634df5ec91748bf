import type { Stage } from "../../changes/stage.ts";
import { bytesOf, digestOf } from "../../files/content-bytes.ts";
import type { GuardedFiles } from "../../files/guarded.ts";
import type { VirtualPath } from "../../sandbox/virtual-path.ts";
import type { AgreementRequest } from "../../tools/hands.ts";

/**
 * What somebody agreed to in one use of a tool, and what the tool then wrote: that very content is not asked about once
 * more when it is applied. Programs in a cell may write there at the same moment, so what stands there proves nothing.
 */
export class AgreedInTool {
  readonly #requests: AgreementRequest[] = [];
  readonly #digests = new Map<VirtualPath, string>();

  add(request: AgreementRequest): void {
    this.#requests.push(request);
  }

  /** The same files, which write down what is written through them. */
  noting(files: GuardedFiles): GuardedFiles {
    const note = (path: string, digest: string): void => {
      const place = files.resolve(path);
      if (place.ok) this.#digests.set(place.path, digest);
    };
    return {
      ...files,
      write: async (path, content, options) => {
        const written = await files.write(path, content, options);
        note(path, digestOf(bytesOf(content)));
        return written;
      },
      edit: async (path, edits, options) => {
        const edited = await files.edit(path, edits, options);
        note(path, edited.digest);
        return edited;
      },
    };
  }

  /** `alone`: nobody else can write there, so that what a tool wrote in another way is what stands there. */
  tell(stage: Stage, alone: boolean): void {
    for (const { operation, path } of this.#requests) {
      const digest = this.#digests.get(path as VirtualPath) ?? null;
      if (operation === "delete" || digest !== null || alone) stage.agreed(operation, path as VirtualPath, digest);
    }
  }
}
