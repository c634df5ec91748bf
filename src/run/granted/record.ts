import type { Mode } from "./refusal.ts";

/** One grant as it is told: in the audit trail, to the person at the end of a run, and as a live one. Host paths are in it. */
export interface GrantRecord {
  readonly id: string;
  readonly run: string;
  readonly root: string;
  readonly worker: string;
  /** The workers from the root run down to the one that asked. */
  readonly through: readonly string[];
  /** Those of them that were granted it: the one that asked, and all that lacked it above. */
  readonly granted: readonly string[];
  /** As the worker knows it. */
  readonly directory: string;
  readonly host: string;
  /** The name of the project's mount in which it lies; null where the project gives nothing there. */
  readonly mount: string | null;
  readonly mode: Mode;
  readonly scope: "once" | "tree" | "session";
  readonly why: string;
  /** ISO 8601. */
  readonly grantedAt: string;
}
