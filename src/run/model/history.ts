import type { RunEvent } from "./events.ts";
import type { Attachment } from "./job.ts";

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
