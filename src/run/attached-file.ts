import { lstat, realpath, stat } from "node:fs/promises";
import { posix, resolve } from "node:path";
import { utf8Note } from "../declarations/place/host-place.ts";
import { checkRead, hostPathOf, parsePathIn } from "../sandbox/access.ts";
import type { Sandbox } from "../sandbox/sandbox.ts";

export type AttachedFile =
  | { readonly ok: true; readonly host: string }
  /** Why there is none, for the user or program that named it: it may hold host paths. */
  | { readonly ok: false; readonly reason: string };

/**
 * What a user or a program attaches to a root run: a file of the host, below `cwd` if its path is relative; if there is none,
 * the file at a virtual path of the project.
 */
export async function attachedFile(path: string, project: Sandbox, cwd: string): Promise<AttachedFile> {
  return (await ownFile(path, cwd)) ?? (await projectFile(path, project));
}

/** The user's own links are followed, once and here; what is mounted holds none. Null if there is no such file. */
async function ownFile(path: string, cwd: string): Promise<AttachedFile | null> {
  const asked = resolve(cwd, path);
  const isThere = await lstat(asked).then(
    () => true,
    () => false,
  );
  if (!isThere) return null;
  try {
    if (!(await stat(asked)).isFile()) return NOT_A_FILE;
    return { ok: true, host: await realpath(asked) };
  } catch (error) {
    return { ok: false, reason: (error as Error).message };
  }
}

/** No link is followed here: a worker may have planted one in what it could write. */
async function projectFile(path: string, project: Sandbox): Promise<AttachedFile> {
  const parsed = parsePathIn(project, path);
  if (!parsed.ok) return { ok: false, reason: `${NOWHERE} (${parsed.reason})${utf8Note(path)}` };
  const host = hostPathOf(project, parsed.path);
  const nowhere = { ok: false, reason: `${NOWHERE}${utf8Note(path)}` } as const;
  if (host === null) return nowhere;
  const found = await lstat(host).catch(() => null);
  if (found === null) return nowhere;
  if (!found.isFile()) return NOT_A_FILE;
  const refused = checkRead(project, parsed.path, { size: found.size });
  return refused === null ? { ok: true, host: posix.normalize(host) } : { ok: false, reason: refused.message };
}

const NOWHERE = "no such file, neither on the host nor in the project";
const NOT_A_FILE = { ok: false, reason: "this is not a regular file" } as const;
