import { existsSync } from "node:fs";
import { basename, join } from "node:path";
import type { AuditTrail } from "../../audit/trail.ts";
import type { Project } from "../../declarations/project.ts";
import { Repositories } from "../../git/repositories.ts";
import { projectPaths } from "../../state/state-paths.ts";
import type { OpenOptions } from "./options.ts";

/** Null if the project has none. By the project's folder, so that two projects may have repositories of the same name. */
export function repositoriesOf(
  { dir, git: repos }: Project,
  { stateDir, engineEnv }: Pick<OpenOptions, "stateDir" | "engineEnv">,
  { ownerDir, liveDir, trail }: { ownerDir: string; liveDir: string; trail: AuditTrail },
): Repositories | null {
  if (repos === undefined) return null;
  return new Repositories({
    dir: projectPaths(stateDir, dir).git,
    repos,
    owner: basename(ownerDir),
    isLive: (owner) => existsSync(join(liveDir, owner)),
    env: engineEnv,
    onPushed: (pushed) => trail.append({ type: "pushed", ...pushed }),
  });
}
