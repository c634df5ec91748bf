import type { RunRecord } from "../../history/run-record.ts";
import { findFleet, type ListedFleet } from "../../operations/fleets.ts";
import { RequestError } from "../../operations/request-error.ts";
import { showRun } from "../../operations/runs.ts";
import type { ServedProject } from "../projects/served-project.ts";
import type { ServedProjects } from "../projects/served-projects.ts";

/* Ids of other projects of the same state directory are unknown here, as if there were no such thing. */

/** @throws RequestError UNKNOWN_RUN */
export async function ownedRun(
  projects: ServedProjects,
  id: string,
): Promise<{ readonly project: ServedProject; readonly record: RunRecord }> {
  for (const project of projects.all) {
    const record = await showRun(project.place, id).catch(unless("UNKNOWN_RUN"));
    if (record !== null && record.project === project.dir) return { project, record };
  }
  throw new RequestError("UNKNOWN_RUN", id, `there is no run ${id}`);
}

/** @throws RequestError UNKNOWN_FLEET */
export async function ownedFleet(
  projects: ServedProjects,
  id: string,
): Promise<{ readonly project: ServedProject; readonly fleet: ListedFleet }> {
  for (const project of projects.all) {
    const fleet = await findFleet(project.place, id).catch(unless("UNKNOWN_FLEET"));
    if (fleet !== null) return { project, fleet };
  }
  throw new RequestError("UNKNOWN_FLEET", id, `there is no fleet ${id}`);
}

function unless(code: RequestError["code"]): (error: unknown) => null {
  return (error) => {
    if (error instanceof RequestError && error.code === code) return null;
    throw error;
  };
}
