import type { Approver } from "../approval/approver.ts";
import type { Driver } from "../isolation/driver.ts";
import type { RefusedSources } from "../isolation/refused-sources.ts";
import type { Project } from "../project/project.ts";
import type { Policy } from "../sandbox/policy.ts";
import type { Emit } from "./events.ts";

/** Everything that runs of one project share. Passed in: nothing here is reached for. */
export interface RunEnvironment {
  readonly project: Project;
  /** Rejects for a policy that does not exist, or whose file is wrong. */
  readonly policyNamed: (name: string) => Promise<Policy>;
  readonly driver: Driver;
  readonly approver: Approver;
  readonly refusedSources: RefusedSources;
  /** The static binary that every cell starts with, on the host. */
  readonly gate: string;
  /** This process's own directory for sockets: short, and only reached by its user. */
  readonly ownerDir: string;
  readonly emit: Emit;
  /** Milliseconds of a clock that only goes forward. */
  readonly now: () => number;
}
