import type { Session } from "../../src/run/session/session.ts";

/** What can be done at one path. */
export interface Abilities {
  readonly read: boolean;
  readonly list: boolean;
  /** Appending to the file that is there, or making one, with the folders that it needs. */
  readonly write: boolean;
}

/** Tries each path as a program does, and takes back what it made. One letter for each thing that can be done. */
const PROBE = `
import json, os, sys

def can(act, path):
    try:
        act(path)
        return True
    except (OSError, ValueError):
        return False

def read(path):
    fd = os.open(path, os.O_RDONLY | os.O_NONBLOCK)
    try:
        os.read(fd, 1)
    finally:
        os.close(fd)

def write(path):
    made = []
    try:
        missing = os.path.dirname(path)
        folders = []
        while missing and not os.path.lexists(missing):
            folders.append(missing)
            missing = os.path.dirname(missing)
        for folder in reversed(folders):
            os.mkdir(folder)
            made.append((os.rmdir, folder))
        new = not os.path.lexists(path)
        fd = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_NONBLOCK, 0o644)
        os.close(fd)
        # Through a link that led nowhere, a file was made at the other end of it.
        if new:
            made.append((os.unlink, path))
        elif os.path.islink(path) and os.stat(path).st_size == 0:
            made.append((os.unlink, os.path.realpath(path)))
    finally:
        for undo, at in reversed(made):
            undo(at)

print(json.dumps(["".join(letter for letter, act in (("r", read), ("l", os.listdir), ("w", write)) if can(act, path))
                  for path in json.load(sys.stdin)]))
`;

/** What the kernel lets the worker do in its cell, at paths of the cell. */
export async function probed(session: Session, paths: readonly string[]): Promise<Abilities[]> {
  const command = `exec python3 -c ${quoted(PROBE)}`;
  const answer = await session.exec({ command, stdin: JSON.stringify(paths) }, new AbortController().signal);
  if (answer.exitCode !== 0) throw new Error(`the probe ended as ${answer.status}: ${answer.stderr}`);
  const found = JSON.parse(answer.stdout) as string[];
  if (found.length !== paths.length) throw new Error("the probe did not tell of every path");
  return found.map((can) => ({ read: can.includes("r"), list: can.includes("l"), write: can.includes("w") }));
}

function quoted(text: string): string {
  return `'${text.replaceAll("'", "'\\''")}'`;
}
