/* The library. Faces such as the command line are built on what is exported here and on the same folders. */

// Running workers, by the parts that the above is made of.
export type { ApprovalOperation, ApprovalRequest, ApprovalScope, Approver, Decision } from "./approval/approver.ts";
export { type ApprovalCallback, type CallbackAnswer, callbackApprover } from "./approval/callback-approver.ts";
// Declarations, and the errors that name their places.
export { loadPolicy, UnknownPolicyError } from "./declarations/policy/policy.ts";
export { loadProject, type Project } from "./declarations/project.ts";
export type { WorkerDefinition } from "./declarations/worker/worker.ts";
export { DeclarationError, type Problem } from "./declarations/yaml/problem.ts";
// Many items: one worker over each of them, in a sandbox of its own.
export type { ItemResult, ItemTemplate, Reuse } from "./fleet/model/item.ts";
// The container as plain JSON; `planFor` is pure.
export type { PlannedSource } from "./isolation/plan/mounts.ts";
export type { Plan } from "./isolation/plan/plan.ts";
export { type ImageFacts, type Planning, type PlanRequest, planFor } from "./isolation/plan/plan-for.ts";
// Where no Engine answers, and why.
export { EngineUnavailableError, type UnavailableReason } from "./isolation/port/engine.ts";
// A project in a program's hands: begin here.
export type { AiTool, AiToolOutput, ToolImages } from "./library/ai-tools.ts";
// Permissions by themselves, to ask and to derive from: pure, without any I/O.
export { type DeriveRequest, FileSandbox } from "./library/file-sandbox.ts";
export { type OpenProjectOptions, openProject } from "./library/open-project.ts";
export type { OpenedProject, PolicyChoice, ProjectMap, ProjectRun } from "./library/opened-project.ts";
export { type MountOf, type SandboxDeclaration, sandboxOf } from "./library/sandbox-of.ts";
export type { ToolCallOptions, ToolFunction, ToolFunctions, ToolInputs } from "./library/tool-functions.ts";
export type { WorkerPlan } from "./library/worker-plan.ts";
export type { ToolsOptions, WorkerCall, WorkerTools } from "./library/worker-tools.ts";
export {
  AttachmentError,
  FleetRefusedError,
  UnknownWorkerError,
  WorkerRefusedError,
} from "./operations/request-error.ts";
export { type MapRequest, mapItems } from "./operations/run-fleet.ts";
export type { AttachedPath } from "./operations/workers.ts";
// Runs, and what would become of them.
export type { SettledChanges } from "./run/changes/settled-run.ts";
export type { CheckReport, FailingPath } from "./run/explain/check.ts";
export type { Explanation } from "./run/explain/explain.ts";
export type { ExplainedRun } from "./run/explain/explained-run.ts";
export type { RunEnvironment } from "./run/model/environment.ts";
export type { RunEvent } from "./run/model/events.ts";
export type { Attachment } from "./run/model/job.ts";
export type { DescribedViolation, RunError, RunResult, RunStatus } from "./run/model/result.ts";
export { type Corral, openCorral } from "./run/open/corral.ts";
export type { OpenOptions } from "./run/open/options.ts";
// Acting under a worker's sandbox without running it: tools, and commands in a cell.
export { type OpenedSession, openSession, type SessionRequest } from "./run/open-session.ts";
export { type RunRequest, run } from "./run/run.ts";

// The permission model as functions over plain data: pure, without any I/O.
export { accessOf, canRead, canWrite, type FileFacts, readablePaths, writablePaths } from "./sandbox/access.ts";
export type { Approval, Consent } from "./sandbox/approval.ts";
export { type ProjectDeclaration, projectSandbox } from "./sandbox/declare.ts";
export { derive } from "./sandbox/derive.ts";
export {
  EditError,
  FileSystemError,
  FileTooLargeError,
  NotFoundError,
  PathNotInSandboxError,
  PathNotWritableError,
  PermissionError,
  SandboxError,
  type SandboxErrorCode,
  SuffixNotAllowedError,
} from "./sandbox/errors.ts";
export { SandboxPermissionEscalationError } from "./sandbox/escalation.ts";
export type { Limits } from "./sandbox/limits.ts";
export type { Access, Mode, Mount } from "./sandbox/mount.ts";
export type { Needs } from "./sandbox/needs.ts";
export type { Network } from "./sandbox/network.ts";
export type { Policy } from "./sandbox/policy.ts";
export type { Derivation, Sandbox } from "./sandbox/sandbox.ts";
export type { Violation, ViolationCode } from "./sandbox/violation.ts";
export { parseVirtualPath, type VirtualPath } from "./sandbox/virtual-path.ts";
export { describeViolation, describeViolations } from "./sandbox/wording.ts";
export { stateDirFrom } from "./state/state-dir.ts";
export type { ToolResult } from "./tools/run-tool.ts";
export type { Tool, ToolOutput } from "./tools/tool.ts";
export { TOOLS } from "./tools/toolbox.ts";
