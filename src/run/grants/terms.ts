import type { Approver, Decision } from "../../approval/approver.ts";
import type { Project } from "../../declarations/project.ts";
import type { RefusedSources } from "../../isolation/sources/refused-sources.ts";
import { governingMount } from "../../sandbox/access.ts";
import type { Sandbox } from "../../sandbox/sandbox.ts";
import type { VirtualPath } from "../../sandbox/virtual-path.ts";
import type { GrantMode, GrantRecord, RunGrants } from "../model/grantee.ts";
import { type Refused, refuse } from "./judge.ts";

/** A path that a worker may not use, and what it would have to be able to do there. */
export interface GrantNeed {
  readonly path: VirtualPath;
  readonly mode: GrantMode;
  /** What it is for, in one sentence. */
  readonly why: string;
  /** The sandbox of the one operation so far, if it was granted something for itself alone. */
  readonly under?: Sandbox;
  /** No operation waits for it: an approval for one operation would be of no use. */
  readonly lastingOnly?: true;
}

/** All that granting needs of its surroundings. */
export interface GrantSurroundings {
  readonly project: Pick<Project, "dir" | "ownFiles">;
  readonly refusedSources: RefusedSources;
  /** Host directories in which some worker may have put a link. */
  readonly writableHosts: () => Promise<readonly string[]>;
  readonly approver: Approver;
  readonly ledger: RunGrants;
  /** Records every grant, once or for longer, before it is used; false: it could not, and nothing is granted. */
  readonly record: (record: GrantRecord) => Promise<boolean>;
  readonly newId: () => string;
  readonly now: () => Date;
}

export type GrantOutcome =
  | {
      readonly ok: true;
      readonly directory: VirtualPath;
      /** Null if the worker already had it: another of its operations asked at the same time. */
      readonly scope: "once" | "tree" | "session" | null;
      /** For the operation that asked. */
      readonly sandbox: Sandbox;
    }
  | Refused;

/* What every question for a directory has in common, whether the worker declares the directory or not. */

/** True if writes there are staged whatever is approved: a single operation has no view to write to. */
export function waitsOnSide(preview: Sandbox, directory: VirtualPath): boolean {
  const mount = governingMount(preview, directory);
  return mount?.view === undefined && (mount?.stage === true || mount?.discard === true);
}

export const NOT_RECORDED = "The grant could not be recorded in the audit trail, and nothing is granted unrecorded.";
export const NOT_FOR_ONE =
  "It was approved for one operation only, but writes there are staged until the end of the run.";

export function unapproved(
  asked: { readonly directory: VirtualPath; readonly mode: GrantMode },
  { outcome, reason }: Decision,
): Refused {
  if (outcome === "timed_out")
    return refuse("APPROVAL_TIMED_OUT", asked, "It needs approval, and no answer came in time.");
  return refuse("APPROVAL_DENIED", asked, `It needs approval, which was denied: ${reason}.`);
}
