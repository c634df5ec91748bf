/* `corral/sandbox`: the permission model by itself, and guarded files. It needs no Engine and no project, and loads no client of one. */

export type { BackendEntry, FileBackend } from "./files/backend/backend-files.ts";
export type {
  Edit,
  EntryType,
  ImageResult,
  ListEntry,
  ReadOptions,
  ReadResult,
  TextResult,
} from "./files/model/files.ts";
// The container as plain JSON.
export { type PlannedSource, sandboxAnchors } from "./isolation/plan/mounts.ts";
export type { Plan } from "./isolation/plan/plan.ts";
export { type ImageFacts, type Planning, type PlanRequest, planFor } from "./isolation/plan/plan-for.ts";
export type { AllowRequest, NetworkRequest } from "./library/checked-request.ts";
// A sandbox to query and to derive from: begin here.
export {
  type DeriveRequest,
  FileSandbox,
  type MountOf,
  type SandboxDeclaration,
  sandboxOf,
} from "./library/file-sandbox.ts";
// Its files: on the host, in memory, or in a store of the program's own.
export type { FileGrant, FileGrantAnswer } from "./library/open-files.ts";
export {
  type DirectoryListing,
  type DynamicFiles,
  type FileApproval,
  type FileWriteOptions,
  type OpenedFileInfo,
  type OpenFilesOptions,
  openFiles,
  type SandboxFiles,
  type WholeReadOptions,
} from "./library/open-files.ts";
// The same as functions over plain data.
export { accessOf, canRead, canWrite, type FileFacts, readablePaths, writablePaths } from "./sandbox/access.ts";
export type { ApprovalRules, Consent } from "./sandbox/approval.ts";
export { type ProjectDeclaration, projectSandbox } from "./sandbox/declare.ts";
export { derive } from "./sandbox/derive.ts";
export {
  EditError,
  FileLeasedError,
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
export type { Limits } from "./sandbox/limits.ts";
export type { Access, Mode, Mount } from "./sandbox/mount.ts";
export type { AllowedNetwork, Network, NetworkRule } from "./sandbox/network/rule.ts";
export type { Policy } from "./sandbox/policy.ts";
export type { Derivation, Needs, Sandbox } from "./sandbox/sandbox.ts";
export type { Violation, ViolationCode } from "./sandbox/violation.ts";
export { parseVirtualPath, type VirtualPath } from "./sandbox/virtual-path.ts";
export { describeViolation, describeViolations, SandboxPermissionEscalationError } from "./sandbox/wording.ts";
