/* The library: what a program needs to open a project and work with it. Sandboxes by themselves are `corral/sandbox`. */

// Who decides on what needs approval.
export type {
  ApprovalOperation,
  ApprovalRequest,
  ApprovalScope,
  Approver,
  Decision,
} from "./approval/approver.ts";
export { type ApprovalCallback, type CallbackAnswer, callbackApprover } from "./approval/queued-approver.ts";
export type { SealedRecord } from "./audit/seal.ts";
export type { Verdict } from "./audit/verify.ts";
// Declarations, and the errors that name their places.
export { loadPolicy, UnknownPolicyError } from "./declarations/policy/policy.ts";
export type { Project } from "./declarations/project.ts";
export type { WorkerDefinition } from "./declarations/worker/worker.ts";
export { DeclarationError, type Problem } from "./declarations/yaml/problem.ts";
export type { EarlierAttempt, FailureGroup, ItemResult, ItemTemplate, Reuse } from "./fleet/model/item.ts";
export type { FleetRecord } from "./fleet/model/store.ts";
export type { FleetEvent, FleetSummary, FleetTotals } from "./fleet/running/events.ts";
export type { RecordedCall, RecordedStream, RunRecord } from "./history/run-record.ts";
export type { Plan } from "./isolation/plan/plan.ts";
export { EngineTrouble } from "./isolation/port/driver.ts";
export { EngineUnavailableError, type UnavailableReason } from "./isolation/port/engine.ts";
export { ImageBuildError } from "./isolation/port/images.ts";
// Documents without a project.
export { type Converted, type ConvertRequest, convert } from "./library/convert.ts";
export type { FileSandbox } from "./library/file-sandbox.ts";
export type { OpenedProject, PolicyChoice, ProjectMap, ProjectRun, WorkerPlan } from "./library/opened-project.ts";
// Begin here.
export { type OpenProjectOptions, openProject } from "./library/opened-project.ts";
export type {
  ApplyOptions,
  ContinueOptions,
  FleetChangeset,
  FleetResults,
  Grants,
  LogOptions,
  ProjectApprovals,
  ProjectAudit,
  ProjectChangesets,
  ProjectFleets,
  ProjectRuns,
} from "./library/project-state.ts";
export type {
  AiTool,
  AiToolOutput,
  ToolCallOptions,
  ToolFunction,
  ToolFunctions,
  ToolImages,
  ToolInputs,
} from "./library/tool-functions.ts";
export type { ToolsOptions, WorkerCall, WorkerTools } from "./library/worker-tools.ts";
export type { AddedGrant, Approval, ApprovalAnswer } from "./operations/approvals.ts";
export type { AuditFilter, AuditRecords } from "./operations/audit.ts";
export type { ConvertedFile } from "./operations/convert/converted.ts";
export type { CancelledFleet, FleetDetails, ListedFleet } from "./operations/fleets.ts";
export type {
  AppliedChangeset,
  ForeseenChangeset,
  KeptChange,
  ListedChangeset,
  RuledPart,
  ShownChangeset,
} from "./operations/foreseen-changes.ts";
export type { ListedCell as CellInfo } from "./operations/machine.ts";
// What an operation throws if it is asked for something that does not exist or cannot be done.
export { RequestError, type RequestErrorCode } from "./operations/request-error.ts";
export type { OutputPiece, RunFilter, RunsToRemove, StoppedRun } from "./operations/runs.ts";
export type { AttachedPath } from "./operations/workers.ts";
// Runs, and what they would get.
export type { SettledChanges } from "./run/changes/settled-run.ts";
export type { CheckReport, FailingPath } from "./run/explain/check.ts";
export type { ExplainedRun, Explanation } from "./run/explain/explain.ts";
export type { RunEvent } from "./run/model/events.ts";
export type { DescribedViolation, RunError, RunResult, RunStatus } from "./run/model/result.ts";
export type { SessionPort } from "./run/session/session-ports.ts";
export type { SessionSnapshot, SnapshotDifference } from "./run/session/session-snapshots.ts";
export type { ApprovalMode } from "./sandbox/approval.ts";
export type { AllowedTraffic, DeniedTraffic, NetworkRefusal, NetworkReport } from "./sandbox/network/judge.ts";
export type { GivenDirectory, LiveGrant } from "./state/live-grants.ts";
export type { ToolResult } from "./tools/tool.ts";
