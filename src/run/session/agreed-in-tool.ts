import type { Stage } from "../../changes/stage.ts";
import type { GuardedFiles } from "../../files/guarded.ts";
import { bytesOf } from "../../files/model/content-bytes.ts";
import { sha256 } from "../../platform/sha256.ts";
import type { VirtualPath } from "../../sandbox/virtual-path.ts";
import type { AgreementRequest } from "../../tools/hands.ts";

/** The content of a file before and after a tool wrote it, in SHA-256; `before` is absent where the tool does not look. */
interface Noted {
  readonly before?: string;
  readonly after: string;
}

/**
 * What somebody agreed to in one use of a tool, and what the tool then wrote: that very content is not asked about once
 * more when it is applied. Programs in a cell may write there at the same moment, so what stands there proves nothing,
 * and may have written there before, so what a diff leaves out proves nothing either.
 */
export class AgreedInTool {
  readonly #requests: AgreementRequest[] = [];
  readonly #written = new Map<VirtualPath, Noted>();

  add(request: AgreementRequest): void {
    this.#requests.push(request);
  }

  /** The same files, which write down what is written through them. */
  noting(files: GuardedFiles): GuardedFiles {
    const note = (path: string, content: Noted): void => {
      const place = files.resolve(path);
      if (place.ok) this.#written.set(place.path, content);
    };
    return {
      ...files,
      write: async (path, content, options) => {
        const written = await files.write(path, content, options);
        note(path, { after: sha256(bytesOf(content)) });
        return written;
      },
      edit: async (path, edits, options) => {
        const edited = await files.edit(path, edits, options);
        note(path, { before: edited.before, after: edited.digest });
        return edited;
      },
    };
  }

  /** `alone`: nobody else can write there, so that what a tool wrote in another way is what stands there. */
  async tell(stage: Stage, alone: boolean): Promise<void> {
    for (const { operation, path: raw, before = null } of this.#requests) {
      const path = raw as VirtualPath;
      const written = operation === "write" ? this.#written.get(path) : undefined;
      if (written !== undefined) await stage.agreedToDiff(path, { before, ...written });
      else if (operation === "delete" || alone) stage.agreed(operation, path);
    }
  }
}
