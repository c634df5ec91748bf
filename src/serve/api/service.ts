import type { Changesets } from "../../operations/changesets.ts";
import type { QueueMachines } from "../../operations/queue-machines.ts";
import type { EventLogs } from "../../state/service/event-log.ts";
import type { UploadFolder } from "../../state/service/upload-folder.ts";
import type { Shares } from "../http/shares.ts";
import type { Metrics } from "../metrics/metrics.ts";
import type { Fleets, Runs, Sessions } from "../model/work.ts";
import type { ServedProjects } from "../projects/served-project.ts";

/** All that the routes use. */
export interface Served {
  readonly stateDir: string;
  readonly projects: ServedProjects;
  readonly changesets: Changesets;
  readonly runs: Runs;
  readonly fleets: Fleets;
  readonly sessions: Sessions;
  readonly logs: EventLogs;
  readonly uploads: UploadFolder;
  /** Bytes of uploads on the disk. */
  readonly uploadShares: Shares;
  readonly metrics: Metrics;
  readonly machines: QueueMachines;
  /** Aborted when the service is being stopped. */
  readonly over: AbortSignal;
}
