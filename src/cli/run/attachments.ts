import { lstat } from "node:fs/promises";
import { basename, resolve } from "node:path";
import { attachedFile } from "../../run/attached-file.ts";
import { isAttachmentName } from "../../run/calls/call.ts";
import type { Attachment } from "../../run/model/job.ts";
import type { Sandbox } from "../../sandbox/sandbox.ts";
import { UsageError } from "../terminal/usage-error.ts";

/**
 * The values of `--attach`. Each is a file of the person's own, or else, where none is there, a virtual path of the
 * project. `PATH=NAME` names it below `/attachments`; a path that itself holds `=` is taken whole where it exists.
 */
export async function resolveAttachments(
  raws: readonly string[],
  project: Sandbox,
  cwd: string,
): Promise<readonly Attachment[]> {
  const attachments: Attachment[] = [];
  for (const raw of raws) {
    const attachment = await resolveAttachment(raw, project, cwd);
    if (attachments.some(({ name }) => name === attachment.name)) {
      throw new UsageError(`--attach ${raw}: another attachment is called ${attachment.name}; write PATH=NAME`);
    }
    attachments.push(attachment);
  }
  return attachments;
}

async function resolveAttachment(raw: string, project: Sandbox, cwd: string): Promise<Attachment> {
  const { path, name } = await split(raw, cwd);
  if (!isAttachmentName(name)) throw new UsageError(`--attach ${raw}: ${JSON.stringify(name)} is not a file's name`);
  const file = await attachedFile(path, project, cwd);
  if (!file.ok) throw new UsageError(`--attach ${path}: ${file.reason}`);
  return { name, host: file.host };
}

async function split(raw: string, cwd: string): Promise<{ path: string; name: string }> {
  const equals = raw.lastIndexOf("=");
  const name = raw.slice(equals + 1);
  const named = equals > 0 && name !== "" && !name.includes("/") && !(await exists(resolve(cwd, raw)));
  return named ? { path: raw.slice(0, equals), name } : { path: raw, name: basename(raw) };
}

async function exists(path: string): Promise<boolean> {
  return await lstat(path).then(
    () => true,
    () => false,
  );
}
