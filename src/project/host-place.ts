import { realpath, stat } from "node:fs/promises";
import { resolve } from "node:path";

export type HostPlace =
  | { readonly ok: true; readonly host: string; readonly directory: boolean }
  /** `fault` follows the name of what is wrong, and holds no host path. */
  | { readonly ok: false; readonly fault: string };

/**
 * The real place of a host path that a project's owner wrote, relative to the project.
 *
 * Links in their own configuration are followed here, once. From then on a host path holds no link, and whatever
 * opens one later must refuse to follow any.
 */
export async function resolveHostPlace(projectDir: string, raw: string): Promise<HostPlace> {
  try {
    const host = await realpath(resolve(projectDir, raw));
    const found = await stat(host);
    if (!found.isDirectory() && !found.isFile()) return { ok: false, fault: "is neither a folder nor a plain file" };
    return { ok: true, host, directory: found.isDirectory() };
  } catch (error) {
    return { ok: false, fault: faultOf(error) };
  }
}

/** What the file system said, in words. Anything but a refusal of this one place is thrown on. */
export function faultOf(error: unknown): string {
  const fault = FAULTS[(error as NodeJS.ErrnoException).code ?? ""];
  if (fault === undefined) throw error;
  return fault;
}

const FAULTS: Readonly<Record<string, string>> = {
  ENOENT: "does not exist",
  ENOTDIR: "does not exist: a part of its path is not a folder",
  EACCES: "cannot be opened: permission denied",
  EPERM: "cannot be opened: permission denied",
  EROFS: "cannot be made: the file system is read-only",
  ELOOP: "cannot be opened: too many symbolic links",
  EISDIR: "is a folder, not a file",
  ENAMETOOLONG: "cannot be opened: its name is too long",
};
