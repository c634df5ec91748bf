import type { ResultEntry } from "../../files/host/results-folder.ts";
import type { CiSelection } from "../../operations/ci/plan-ci.ts";
import type { AnswerOf } from "../../operations/contract/table.ts";
import type { ConversionOptions } from "../../operations/convert/conversion.ts";
import type { SourceFile } from "../../operations/convert/source-files.ts";
import type { FleetStart } from "../../operations/fleet-start.ts";
import type { SettledChanges } from "../../run/changes/settled-run.ts";
import type { Corral } from "../../run/open/corral.ts";
import type { Session } from "../../run/session/session.ts";
import type { UploadBatch } from "../../state/service/upload-folder.ts";
import type { ToolResult } from "../../tools/tool.ts";
import type { ServedProject } from "../projects/served-project.ts";

export interface RunOrder {
  readonly project: ServedProject;
  readonly worker: string;
  readonly words: readonly string[];
  readonly input: unknown;
  readonly attachments: readonly { readonly path: string; readonly name: string }[];
  readonly continues?: string;
  readonly policy: string | null;
  /** When the run has ended, or was not started. */
  readonly ended: () => Promise<void>;
}

/** The runs of the service, as the routes use them. */
export interface Runs {
  /** Refuses what cannot begin, before its files come. @throws RequestError, DeclarationError, ServiceFault */
  check(order: Pick<RunOrder, "project" | "worker" | "words">): Promise<void>;
  /** Answers with the id of the run when it has begun. @throws RequestError, DeclarationError, ServiceFault if it cannot begin */
  start(order: RunOrder): Promise<string>;
  /** When the run has ended; null if it is none of those that run. */
  ending(run: string): Promise<void> | null;
}

/** The fleets of the service, as the routes use them. */
export interface Fleets {
  /** Answers with its id when all items are read and checked. `start` is made with the project as its files are now. @throws RequestError FLEET_REFUSED, UNKNOWN_FLEET */
  start(project: ServedProject, startOf: (corral: Corral) => Promise<FleetStart>): Promise<string>;
  /** It starts no further item; with `now`, those that run end too. False: the service does not run it. */
  pause(fleet: string, now: boolean): boolean;
}

/** A session as clients see it. Its id is that of its run. */
type ShownSession = AnswerOf<"sessions.show">;

/** How a session is opened. */
export interface SessionOrder {
  readonly policy: string | null;
  /** A snapshot to go on from. */
  readonly from?: string;
  /** What it is called. */
  readonly name?: string;
}

/** The sessions of the service, as the routes use them. */
export interface Sessions {
  readonly all: readonly ShownSession[];
  /** @throws RequestError WORKER_REFUSED, UNKNOWN_WORKER; ToolRefusal UNKNOWN_SNAPSHOT */
  open(project: ServedProject, workerName: string, how: SessionOrder): Promise<ShownSession>;
  /** @throws ServiceFault UNKNOWN_SESSION */
  find(id: string): ShownSession;
  /** @throws ServiceFault UNKNOWN_SESSION */
  toolsOf(id: string): AnswerOf<"sessions.tools">["tools"];
  /** @throws ServiceFault UNKNOWN_SESSION, TOO_MANY */
  runTool(id: string, tool: string, input: unknown, signal: AbortSignal): Promise<ToolResult>;
  /** Uses it, so that it does not end as idle. @throws ServiceFault UNKNOWN_SESSION, TOO_MANY */
  within<T>(id: string, act: (session: Session) => Promise<T>): Promise<T>;
  /** Settles when it has ended, for whichever reason. Never rejects. */
  closed(id: string): Promise<void>;
  /** Ends it, and applies the changes for which there is consent; null if there are none. `discards`: nothing is applied or kept. @throws ServiceFault UNKNOWN_SESSION */
  finish(id: string, discards: boolean): Promise<SettledChanges | null>;
}

/** The files are in the folder of the batch, which belongs to the conversion from now on. */
export interface ConversionOrder extends Omit<ConversionOptions, "policy"> {
  readonly files: readonly SourceFile[];
  readonly batch: UploadBatch;
}

/** A conversion as clients see it. */
export type ShownConversion = AnswerOf<"conversions.show">;

/** The conversions of the service, as the routes use them. */
export interface Conversions {
  /** The newest first. */
  readonly all: readonly ShownConversion[];
  /** Before files come. @throws ServiceFault TOO_MANY */
  refuseMore(): void;
  /** Answers with its id when it has begun. */
  start(order: ConversionOrder): Promise<string>;
  /** @throws ServiceFault UNKNOWN_CONVERSION */
  find(id: string): ShownConversion;
  /** When it has ended; null: it has. @throws ServiceFault UNKNOWN_CONVERSION */
  ending(id: string): Promise<void> | null;
  /** @throws ServiceFault UNKNOWN_CONVERSION, NOT_FOUND */
  file(id: string, path: string): ResultEntry;
  /** @throws ServiceFault UNKNOWN_CONVERSION */
  files(id: string): AsyncIterable<ResultEntry>;
  /** Stops it, and removes its files. @throws ServiceFault UNKNOWN_CONVERSION */
  remove(id: string): Promise<void>;
}

export interface CiOrder {
  readonly project: ServedProject;
  readonly base: string;
  readonly head: string;
  readonly selection: CiSelection;
}

/** A run of jobs as clients see it. */
export type ShownCi = AnswerOf<"ci.show">;

/** The runs of jobs of the service, as the routes use them. */
export interface CiRuns {
  /** The newest first. */
  readonly all: readonly ShownCi[];
  /** Answers with its id. What is wrong with its commits or with `ci.yaml` is the reason why it has stopped. @throws ServiceFault TOO_MANY */
  start(order: CiOrder): string;
  /** @throws ServiceFault UNKNOWN_CI */
  find(id: string): ShownCi;
  /** When it has ended; null: it has. @throws ServiceFault UNKNOWN_CI */
  ending(id: string): Promise<void> | null;
  /** @throws ServiceFault UNKNOWN_CI, NOT_FOUND */
  file(id: string, path: string): ResultEntry;
  /** Stops it, and removes its results. @throws ServiceFault UNKNOWN_CI */
  remove(id: string): Promise<void>;
}
