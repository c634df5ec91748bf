import type { Stage } from "../../changes/stage.ts";
import type { GuardedFiles } from "../../files/guarded.ts";
import { bytesOf } from "../../files/model/content-bytes.ts";
import { sha256 } from "../../platform/sha256.ts";
import type { VirtualPath } from "../../sandbox/virtual-path.ts";
import type { AgreementRequest } from "../../tools/hands.ts";

/** The content of a file before and after a tool wrote it, in SHA-256; `before` is absent if the tool does not read it. */
interface Noted {
  readonly before?: string;
  readonly after: string;
}

/**
 * What was approved in one use of a tool, and what the tool then wrote: exactly this content needs no second consent when
 * it is applied. Programs in a cell may write there at the same moment, so the file's content proves nothing. They may
 * also have written there before, so what a diff leaves out proves nothing either.
 */
export class AgreedInTool {
  readonly #requests: AgreementRequest[] = [];
  readonly #written = new Map<VirtualPath, Noted>();

  add(request: AgreementRequest): void {
    this.#requests.push(request);
  }

  /** The same files, which note what is written through them. */
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

  /** `alone`: nothing else can write there, so the content of the file is what the tool wrote. */
  async tell(stage: Stage, alone: boolean): Promise<void> {
    for (const { operation, path: raw, before = null } of this.#requests) {
      const path = raw as VirtualPath;
      const written = operation === "write" ? this.#written.get(path) : undefined;
      if (written !== undefined) await stage.agreedToDiff(path, { before, ...written });
      else if (operation === "delete" || alone) stage.agreed(operation, path);
    }
  }
}
