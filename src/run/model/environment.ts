import type { ModelSources } from "../../agent/provider/open-model.ts";
import type { Transcripts } from "../../agent/transcript/transcript.ts";
import type { Approver } from "../../approval/approver.ts";
import type { AuditTrail } from "../../audit/trail.ts";
import type { Project } from "../../declarations/project.ts";
import type { Repositories } from "../../git/repositories.ts";
import type { Driver } from "../../isolation/port/driver.ts";
import type { RefusedSources } from "../../isolation/sources/refused-sources.ts";
import type { Policy } from "../../sandbox/policy.ts";
import type { GrantLedger } from "../granted/ledger.ts";
import type { Changesets } from "./changesets.ts";
import type { Emit } from "./events.ts";
import type { SchemaChecks } from "./schema-check.ts";

/** Everything that runs of one project share. Passed in: nothing here is reached for. */
export interface RunEnvironment {
  readonly project: Project;
  /** Rejects for a policy that does not exist, or whose file is wrong. */
  readonly policyNamed: (name: string) => Promise<Policy>;
  readonly driver: Driver;
  readonly approver: Approver;
  /** What is done is told to it; what may not be done unrecorded waits for it first. */
  readonly audit: AuditTrail;
  readonly refusedSources: RefusedSources;
  /** What running workers were granted beyond their declarations. */
  readonly grants: GrantLedger;
  /** Where the changes of root runs are applied from, and wait. */
  readonly changesets: Changesets;
  /** Absent where the project declares none: nobody may then use any. */
  readonly git?: Repositories;
  /** Where agents' models and their keys are. */
  readonly models: ModelSources;
  /** What inputs and answers are checked by. */
  readonly schemas: SchemaChecks;
  /** Where agents' conversations are written down. */
  readonly transcripts: Transcripts;
  /** False: views are copies, also where overlays are to be had. */
  readonly overlays: boolean;
  /** The static binary that every cell starts with, on the host. */
  readonly gate: string;
  /** This process's own directory for sockets: short, and only reached by its user. */
  readonly ownerDir: string;
  readonly emit: Emit;
  /** Milliseconds of a clock that only goes forward. */
  readonly now: () => number;
}
