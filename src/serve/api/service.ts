import type { Changesets } from "../../operations/changesets.ts";
import type { QueueMachines } from "../../operations/queue-machines.ts";
import type { EventLogs } from "../../state/service/event-log.ts";
import type { UploadFolder } from "../../state/service/upload-folder.ts";
import type { Metrics } from "../metrics/metrics.ts";
import type { ServedProjects } from "../projects/served-projects.ts";
import type { OpenSessions } from "../work/open-sessions.ts";
import type { StartedFleets } from "../work/started-fleets.ts";
import type { StartedRuns } from "../work/started-runs.ts";

/** All that the routes use. */
export interface Served {
  readonly stateDir: string;
  readonly projects: ServedProjects;
  readonly changesets: Changesets;
  readonly runs: StartedRuns;
  readonly fleets: StartedFleets;
  readonly sessions: OpenSessions;
  readonly logs: EventLogs;
  readonly uploads: UploadFolder;
  readonly metrics: Metrics;
  readonly machines: QueueMachines;
  /** Aborted when the service is being stopped. */
  readonly over: AbortSignal;
}
