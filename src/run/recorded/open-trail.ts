import { auditKey } from "../../audit/seal.ts";
import { TrailFile } from "../../audit/trail.ts";
import { loadSealKey, lockOwner } from "../../state/owner.ts";
import { projectPaths } from "../../state/state-paths.ts";

/** The audit trail of a project, to append to. `projectDir` is absolute, with no symbolic link in it. */
export async function openTrail(stateDir: string, projectDir: string): Promise<TrailFile> {
  const key = auditKey(await loadSealKey(stateDir), projectDir);
  return new TrailFile({ place: projectPaths(stateDir, projectDir).trail, key, owner: lockOwner() });
}
