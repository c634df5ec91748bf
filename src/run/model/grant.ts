import type { NetworkRule } from "../../sandbox/network/rule.ts";
import type { Violation } from "../../sandbox/violation.ts";
import type { LiveDirectoryGrant, LiveHostGrant } from "../../state/live-grants.ts";
import type { Grantee } from "./grantee.ts";

/** What a directory is granted for; writing includes reading. */
export type Mode = "read" | "write";

/** One grant as it is reported: in the audit trail, to the user at the end of a run, and while it is live. */
export type GrantRecord = DirectoryGrantRecord | HostGrantRecord;

interface Reported {
  /** The workers of `through` that were granted it: the one that asked, and all that lacked it above. */
  readonly granted: readonly string[];
  readonly why: string;
}

/** It holds host paths. */
export interface DirectoryGrantRecord extends Omit<LiveDirectoryGrant, "scope">, Reported {
  /** The name of the project's mount in which it lies; null if the project gives nothing there. */
  readonly mount: string | null;
  readonly scope: LiveDirectoryGrant["scope"] | "once";
  /** True if the worker declares it, and only its reading needed consent. */
  readonly declared?: true;
}

/** A host of the network. */
export interface HostGrantRecord extends LiveHostGrant, Reported {
  /** What the worker that asked was granted of it. */
  readonly rules: readonly NetworkRule[];
}

/** A grant, by what a later request is compared with. */
export type GrantedPlace = Pick<DirectoryGrantRecord, "worker" | "host" | "mode">;
export type GrantedHost = Pick<HostGrantRecord, "worker" | "to">;

/** The grants of one orchestrator: which runs have what, what was revoked, and what there is to report. */
export interface Grants {
  /** Every grant of this process that was not revoked, the oldest first. */
  readonly told: readonly GrantRecord[];
  /** Keeps the run's grants until the returned value is disposed of, at the end of the run. */
  join(grantee: Grantee): Promise<AsyncDisposable>;
  /** Runs one change after the ones before it. */
  inTurn<T>(change: () => Promise<T>): Promise<T>;
  /** In turn: lists a grant, then makes it true by `keep`, which may report why it cannot. */
  add(record: GrantRecord, keep: () => Promise<readonly Violation[]>): Promise<readonly Violation[]>;
  /** True if the user revoked this or a part of it: an earlier approval of a directory around it may still be remembered. */
  wasRevoked(place: GrantedPlace | GrantedHost): boolean;
  /** Takes away what was revoked since the last call. Before each use of a sandbox that was expanded. */
  look(): Promise<void>;
}
