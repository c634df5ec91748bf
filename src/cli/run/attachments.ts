import { basename } from "node:path";
import { isAttachmentName } from "../../run/calls/call.ts";
import { namedPath } from "../declared/named-path.ts";
import { UsageError } from "../terminal/arguments.ts";

export interface NamedPath {
  readonly path: string;
  readonly name: string;
}

/** The values of `--attach`. `PATH=NAME` names the file below `/attachments`; a path with `=` in it is taken whole if it exists. */
export async function attachedPaths(raws: readonly string[], cwd: string): Promise<readonly NamedPath[]> {
  const names = new Set<string>();
  const attached: NamedPath[] = [];
  for (const raw of raws) {
    const { path, name = basename(path) } = await namedPath(raw, cwd);
    if (!isAttachmentName(name)) throw new UsageError(`--attach ${raw}: ${JSON.stringify(name)} is not a file name`);
    if (names.has(name))
      throw new UsageError(`--attach ${raw}: another attachment has the name ${name}; write PATH=NAME`);
    names.add(name);
    attached.push({ path, name });
  }
  return attached;
}
