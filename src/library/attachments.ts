import { basename } from "node:path";
import { AttachmentError } from "../operations/request-error.ts";
import { attachedFile } from "../run/attached-file.ts";
import type { RunEnvironment } from "../run/model/environment.ts";
import type { Attachment } from "../run/model/job.ts";
import { rootSandbox } from "../run/model/permission.ts";

/**
 * A file for a worker to read, by its path: a file of the host, from the program's working directory where it is relative, or
 * else, where nothing is there, a virtual path of the project. `name` is what it is called below `/attachments`.
 */
export type AttachedPath = string | { readonly path: string; readonly name?: string };

/** Rejects with {@link AttachmentError}. Their names, and whether a worker takes them, are looked at by the run. */
export async function attachmentsAt(
  paths: readonly AttachedPath[],
  policy: string | null,
  env: RunEnvironment,
): Promise<readonly Attachment[]> {
  if (paths.length === 0) return [];
  const project = await rootSandbox(env, policy);
  // A policy that refuses the project refuses the run as well, and says why.
  if (!project.ok) return [];
  const attachments: Attachment[] = [];
  for (const one of paths) {
    const { path, name = basename(path) } = typeof one === "string" ? { path: one } : one;
    const file = await attachedFile(path, project.sandbox, process.cwd());
    if (!file.ok) throw new AttachmentError(path, file.reason);
    attachments.push({ name, host: file.host });
  }
  return attachments;
}
