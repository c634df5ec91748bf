import { archiveOf, GitRefusal } from "../git/tree-archive.ts";
import { RequestError } from "./request-error.ts";

/** A file to attach, which is removed when this is disposed. */
export interface AttachedTree extends AsyncDisposable {
  /** None if it was cancelled, as the run will be. */
  readonly attachments: readonly { readonly path: string; readonly name: string }[];
}

/**
 * The files of a commit as a tar archive to attach, as `name`. The repository is that of `cwd`.
 *
 * @throws RequestError ATTACHMENT
 */
export async function attachedTree(
  revision: string,
  name: string,
  where: { readonly cwd: string; readonly signal: AbortSignal },
): Promise<AttachedTree> {
  try {
    const archive = await archiveOf(revision, where);
    return {
      attachments: [{ path: archive.path, name }],
      [Symbol.asyncDispose]: async () => await archive[Symbol.asyncDispose](),
    };
  } catch (error) {
    if (where.signal.aborted) return { attachments: [], [Symbol.asyncDispose]: async () => {} };
    if (!(error instanceof GitRefusal)) throw error;
    throw new RequestError("ATTACHMENT", revision, `cannot attach the files of a commit: ${error.message}`);
  }
}
