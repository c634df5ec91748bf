import type { ModelSources } from "../../agent/open-model.ts";
import type { Transcripts } from "../../agent/transcript.ts";
import type { Approver } from "../../approval/approver.ts";
import type { AuditTrail } from "../../audit/trail.ts";
import type { ImageLayers, RootTrees } from "../../changes/layers/root-trees.ts";
import type { SnapshotStore } from "../../changes/layers/snapshot-store.ts";
import type { Changeset } from "../../changes/model/changeset.ts";
import type { Project } from "../../declarations/project.ts";
import type { Repositories } from "../../git/repository.ts";
import type { CellMaker, Driver } from "../../isolation/port/driver.ts";
import type { RefusedSources } from "../../isolation/sources/refused-sources.ts";
import type { Policy } from "../../sandbox/policy.ts";
import type { Masking, SecretOf } from "../../secrets/read-secret.ts";
import type { Emit, RunEvent } from "./events.ts";
import type { RunGrants } from "./grantee.ts";
import type { Attachment, Job, SchemaChecks } from "./job.ts";
import type { KeptChangesets } from "./result.ts";
import type { WorkerImages } from "./worker-images.ts";

/** What a project's files declare, for code that derives a sandbox or checks a value. */
export interface Declared {
  readonly project: Project;
  /** Rejects for a policy that does not exist, or whose file is wrong. */
  readonly policyNamed: (name: string) => Promise<Policy>;
  /** Checks inputs and answers. */
  readonly schemas: SchemaChecks;
}

/** What cells are made with, and which host directories no cell may be shown. */
export interface CellHost {
  /** Whose workers the cells are for, as their labels say. */
  readonly projectDir: string;
  readonly driver: Driver;
  /** Makes what a worker's cells need, if it is missing. */
  readonly images: WorkerImages;
  /** The static binary that every cell starts with, on the host. Rejects if there is no Engine. */
  readonly gate: () => Promise<string>;
  /** This process's own directory for sockets: short, and only reached by its user. */
  readonly ownerDir: string;
  readonly refusedSources: RefusedSources;
  /** False: views are copies, even if the host has overlays. */
  readonly overlays: boolean;
  /** What writable roots show at first, and the image's layers that it is made of. Absent: there is none. */
  readonly roots?: { readonly trees: RootTrees; readonly layers: (image: string) => Promise<ImageLayers | null> };
  /** The value of a secret that a worker has inside of its cell, by its name in `secrets` of `corral.yaml`. Read for each cell. */
  readonly secretInside: SecretOf;
}

/** What the hosts of allow lists are reached with, outside of every cell. */
export interface NetworkHost {
  /** All addresses of a name, as this machine's resolver has them. */
  readonly resolveName: (host: string, signal: AbortSignal) => Promise<readonly string[]>;
  /** Read for each use, by the name in `secrets` of `corral.yaml`. */
  readonly secretOf: SecretOf;
  /** Certificates, as PEM, that are trusted for hosts that are looked into. */
  readonly trustedRoots: () => Promise<readonly string[]>;
}

/** Who agrees to what needs consent, and what running workers were granted beyond their declarations. */
export interface RunConsent {
  readonly approver: Approver;
  /** Decides by the project's rules and its mode alone: what needs a person waits. */
  readonly nobodyAsked: Approver;
  /** Decides by the project's rules, and then by the word of the user who gives something without being asked. */
  readonly agreedBy: (user: string) => Approver;
  readonly grants: RunGrants;
}

/** Where it is reported and recorded what happens, and when. */
export interface Records {
  /** Whatever must not happen unrecorded waits for it. */
  readonly audit: AuditTrail;
  readonly emit: Emit;
  /** Hides the secrets that are inside of cells in everything that is shown, reported or stored. */
  readonly masking: Masking;
  /** Milliseconds of a clock that only goes forward. */
  readonly now: () => number;
}

/** What is kept of the runs that users and programs start. Items of fleets are in the journal of their fleet. */
export interface Kept {
  readonly history: History;
}

/** Where the output and the records of runs are kept. */
export interface Destinations {
  /** The changes of root runs are applied from there, and wait there. */
  readonly changesets: KeptChangesets;
  /** Takes what a root run changed, at its end: another machine decides on it. Absent: this one does. */
  readonly handsOver?: (job: Job, changeset: Changeset) => Promise<void>;
  /** Of the project's sessions. Absent: none can be taken. */
  readonly snapshots?: SnapshotStore;
  /** Absent if the project declares no repositories: no worker may use any then. */
  readonly git?: Repositories;
}

/** What agents talk to, and where their conversations are recorded. */
export interface AgentHost {
  readonly models: ModelSources;
  readonly transcripts: Transcripts;
}

/** Everything that the runs of one project share. Passed in; a function takes the ports that it uses. */
export interface RunEnvironment
  extends Declared,
    CellHost,
    RunConsent,
    Records,
    Kept,
    Destinations,
    AgentHost,
    NetworkHost {
  /** Makes the fresh cells of fleets' items, and of what they call. */
  readonly itemCells: CellMaker;
}

/** A root run that begins. */
export interface BegunRun {
  readonly run: string;
  readonly kind: "run" | "session";
  readonly worker: string;
  /** What was added to its command. */
  readonly words?: readonly string[];
  readonly input?: unknown;
  readonly attachments: readonly Attachment[];
  /** The run whose conversation it continues. */
  readonly continues?: string;
}

/** The runs of a project, as they are kept for the user: `corral runs`. */
export interface History {
  begin(run: BegunRun): RunHistory;
}

/** The record of one root run. Nothing of it fails a run. */
export interface RunHistory {
  /** Aborted if the user stops the run from another process. */
  readonly stopped: AbortSignal;
  /** Sees every event of the tree. The end of the root run ends the record. */
  see(event: RunEvent): void;
  /** For a session, which has no event of its end. Only the first time counts. */
  closed(how: ClosedSession): void;
}

export interface ClosedSession {
  readonly status: "closed" | "cancelled";
  /** The id of the changeset that waits. */
  readonly changeset: { readonly id: string | null; readonly counts: Readonly<Record<string, number>> } | null;
  readonly network: Readonly<Record<string, unknown>> | null;
}

/** Keeps nothing. */
export const noHistory: History = {
  begin: () => ({ stopped: NEVER, see: () => {}, closed: () => {} }),
};

const NEVER = new AbortController().signal;
