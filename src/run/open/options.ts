import { type Approver, approveAll, autoDeny, noApprover, type Question } from "../../approval/approver.ts";
import { ruledApprover } from "../../approval/rules.ts";
import type { Project } from "../../declarations/project.ts";
import { EngineUnavailableError } from "../../isolation/port/engine.ts";
import { outerProcess } from "../../isolation/sources/outer-process.ts";
import type { ApprovalMode } from "../../sandbox/approval.ts";
import type { NetworkHost } from "../model/environment.ts";
import type { Emit } from "../model/events.ts";

export interface OpenOptions {
  readonly projectDir: string;
  /** Where Corral keeps its own: the seal, the gate, sockets. Absolute. */
  readonly stateDir: string;
  /** DOCKER_HOST, DOCKER_CONTEXT and their kind, and HOME: the location of the Engine; and what `git.repos.*.credentials` names. */
  readonly engineEnv: Readonly<Record<string, string | undefined>>;
  readonly emit?: Emit;
  /** In place of the project's approval mode. */
  readonly approvalMode?: ApprovalMode;
  /** Answers in the mode `interactive`; absent: no person can be asked. */
  readonly person?: Approver;
  /** False: views are copies, even if overlays are available. */
  readonly overlays?: boolean;
  /** In place of this machine's own resolver, secrets and certificates. */
  readonly networkHost?: Partial<NetworkHost>;
  /** A program that decides in place of a person, such as a `callbackApprover`. */
  readonly approver?: Approver;
  /** True: a question that no user can answer here waits in the inbox, whatever the project says, unless its inbox is closed. */
  readonly asksElsewhere?: boolean;
  /** A question waits in the inbox, and is asked nowhere else. */
  readonly onWaiting?: (id: string, question: Question) => void;
}

/** The project's rules come first; the mode decides what they do not cover. */
export function approverFor(
  { approval }: Project,
  { approvalMode = approval.mode, approver, person }: Pick<OpenOptions, "approvalMode" | "approver" | "person">,
  shared: (approver: Approver) => Approver = (approver) => approver,
): Approver {
  const byMode: Readonly<Record<ApprovalMode, Approver>> = {
    interactive: shared(approver ?? person ?? noApprover),
    approve_all: approveAll,
    auto_deny: autoDeny,
  };
  return ruledApprover(approval.rules, byMode[approvalMode]);
}

/** The image of the service says so. Nothing is guessed: a container without the host's processes has another process 1. */
export function isContained({ engineEnv }: Pick<OpenOptions, "engineEnv">): boolean {
  return engineEnv.CORRAL_CONTAINED === "1";
}

/** A process with the mounts of the host; null if Corral has the same ones. @throws EngineUnavailableError if it says that it is in a container, and cannot see the host */
export function outerProcessFor(options: Pick<OpenOptions, "engineEnv">): number | null {
  if (!isContained(options)) return null;
  const outer = outerProcess();
  if (outer !== null) return outer;
  const message =
    "CORRAL_CONTAINED=1 says that Corral is in a container, and it cannot see the mounts of the host. Start it with `pid: host` and the capabilities SYS_ADMIN and SYS_PTRACE, as compose.yaml does";
  throw new EngineUnavailableError(message, { reason: "setting", source: null, cause: null });
}
