/* The library. Faces such as the command line are built on what is exported here and on the same folders. */

// Running workers.
export type { ApprovalOperation, ApprovalRequest, ApprovalScope, Approver, Decision } from "./approval/approver.ts";
export { type ApprovalCallback, type CallbackAnswer, callbackApprover } from "./approval/callback-approver.ts";
// Many items: one worker over each of them, in a sandbox of its own.
export type { ItemResult, ItemTemplate, Reuse } from "./fleet/item.ts";
export { FleetRefused, type MapRequest, mapItems } from "./fleet/map-items.ts";
// Declarations, and the errors that name their places.
export { loadPolicy } from "./policy/policy.ts";
export { loadProject, type Project } from "./project/project.ts";
export type { WorkerDefinition } from "./project/worker.ts";
export type { RunEnvironment } from "./run/environment.ts";
export type { RunEvent } from "./run/events.ts";
export type { Attachment } from "./run/job.ts";
export { type Corral, openCorral } from "./run/open/corral.ts";
export type { OpenOptions } from "./run/open/options.ts";
export type { DescribedViolation, RunError, RunResult, RunStatus } from "./run/result.ts";
export { type RunRequest, run } from "./run/run.ts";
// Acting under a worker's sandbox without running it: tools, and commands in a cell.
export { type OpenedSession, openSession, type SessionRequest } from "./run/session/open-session.ts";

// The permission model by itself: pure, without any I/O.
export { accessOf, canRead, canWrite, readablePaths, writablePaths } from "./sandbox/access.ts";
export { type ProjectDeclaration, projectSandbox } from "./sandbox/declare.ts";
export { type Derivation, derive } from "./sandbox/derive.ts";
export type { Limits } from "./sandbox/limits.ts";
export type { Access, Approval, Consent, Mode, Mount } from "./sandbox/mount.ts";
export type { Needs } from "./sandbox/needs.ts";
export type { Network } from "./sandbox/network.ts";
export type { Policy } from "./sandbox/policy.ts";
export type { Sandbox } from "./sandbox/sandbox.ts";
export type { Violation, ViolationCode } from "./sandbox/violation.ts";
export { parseVirtualPath, type VirtualPath } from "./sandbox/virtual-path.ts";
export { describeViolation, describeViolations } from "./sandbox/wording.ts";
export type { ToolResult } from "./tools/run-tool.ts";
export type { Tool, ToolOutput } from "./tools/tool.ts";
export { TOOLS } from "./tools/toolbox.ts";
export { DeclarationError, type Problem } from "./yaml/problem.ts";
