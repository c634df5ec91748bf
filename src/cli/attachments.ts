import { lstat, realpath, stat } from "node:fs/promises";
import { basename, posix, resolve } from "node:path";
import { isAttachmentName } from "../run/call.ts";
import type { Attachment } from "../run/job.ts";
import { checkRead, hostPathOf, parsePathIn } from "../sandbox/access.ts";
import type { Sandbox } from "../sandbox/sandbox.ts";
import { UsageError } from "./usage-error.ts";

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
  const host = (await ownFile(path, cwd)) ?? (await projectFile(path, project));
  return { name, host };
}

async function split(raw: string, cwd: string): Promise<{ path: string; name: string }> {
  const equals = raw.lastIndexOf("=");
  const name = raw.slice(equals + 1);
  const named = equals > 0 && name !== "" && !name.includes("/") && !(await exists(resolve(cwd, raw)));
  return named ? { path: raw.slice(0, equals), name } : { path: raw, name: basename(raw) };
}

/** The person's own links are followed, once and here; what is mounted holds none. Null where nothing is there. */
async function ownFile(path: string, cwd: string): Promise<string | null> {
  const asked = resolve(cwd, path);
  if (!(await exists(asked))) return null;
  const found = await stat(asked).catch((error: Error) => {
    throw new UsageError(`--attach ${path}: ${error.message}`, { cause: error });
  });
  if (!found.isFile()) throw new UsageError(`--attach ${path}: this is not a regular file`);
  return await realpath(asked);
}

/** No link is followed here: a worker may have planted one in what it could write. */
async function projectFile(path: string, project: Sandbox): Promise<string> {
  const parsed = parsePathIn(project, path);
  const nowhere = "there is no such file, neither here nor in the project";
  if (!parsed.ok) throw new UsageError(`--attach ${path}: ${nowhere} (${parsed.reason})`);
  const host = hostPathOf(project, parsed.path);
  const refused = checkRead(project, parsed.path);
  if (refused !== null || host === null) {
    throw new UsageError(`--attach ${path}: ${nowhere}${refused === null ? "" : ` (${refused.message})`}`);
  }
  const found = await lstat(host).catch(() => null);
  if (found === null) throw new UsageError(`--attach ${path}: ${nowhere}`);
  if (!found.isFile()) throw new UsageError(`--attach ${path}: this is not a regular file`);
  return posix.normalize(host);
}

async function exists(path: string): Promise<boolean> {
  return await lstat(path).then(
    () => true,
    () => false,
  );
}
