import { join } from "node:path";
import { stateNameOf } from "../state/state-name.ts";

/** Where the trail of one project is kept: a directory of its own in Corral's state directory. Absolute paths. */
export interface TrailPlace {
  readonly dir: string;
  /** The records, one a line. */
  readonly trail: string;
  /** How far the trail had come when it was last written, sealed. */
  readonly head: string;
  readonly lock: string;
  /** Names the project, for people. */
  readonly project: string;
  /** The project's directory itself. */
  readonly of: string;
}

/** `projectDir`: absolute, with no symbolic link in it. */
export function trailPlace(stateDir: string, projectDir: string): TrailPlace {
  const dir = join(stateDir, "audit", stateNameOf(projectDir));
  return {
    dir,
    trail: join(dir, "trail.ndjson"),
    head: join(dir, "head"),
    lock: join(dir, "lock"),
    project: join(dir, "project"),
    of: projectDir,
  };
}
