import type { ToolName } from "../declarations/worker/tool-names.ts";
import type { GuardedFiles } from "../files/guarded.ts";
import type { HostExecuted } from "../sandbox/approval.ts";
import type { PackageKind } from "../sandbox/network/rule.ts";
import type { VirtualPath } from "../sandbox/virtual-path.ts";

/** What tools act with: the files, cell, calls and repositories of one worker. The caller of a tool provides it. */
export interface Hands {
  readonly files: GuardedFiles;
  /** The tools that have a use for the worker: a refusal advises no other. */
  readonly offered: readonly ToolName[];
  /** Asks a person for approval; rejects with `ToolRefusal` if it is denied or no answer comes. */
  agree(request: AgreementRequest, signal: AbortSignal): Promise<void>;
  exec(request: ExecToolRequest, signal: AbortSignal): Promise<ExecToolAnswer>;
  /** Resolves with the child's RunResult as plain JSON, also if the child is refused. */
  call(request: CallToolRequest, signal: AbortSignal): Promise<CallToolAnswer>;
  /** Asks for a directory or a host for the rest of the run. */
  access(request: AccessToolRequest, signal: AbortSignal): Promise<AccessToolAnswer>;
  /** Applies the staged changes that a person approves. */
  commit(signal: AbortSignal): Promise<CommitAnswer>;
  readonly git: GitHands;
}

/** The repositories that a worker may use. Each operation rejects with `ToolRefusal` if it is not allowed. */
export interface GitHands {
  /** Writes files of a repository into the worker's directories. If that needs approval, one question covers all files. */
  pull(request: GitPullRequest, signal: AbortSignal): Promise<GitPullAnswer>;
  /** Creates a commit that stays on this machine. */
  stage(request: GitStageRequest, signal: AbortSignal): Promise<GitStageAnswer>;
  /** Sends a staged commit to the repository, after a person approved it. */
  push(commit: string, signal: AbortSignal): Promise<GitStagedCommit>;
  discard(commit: string, signal: AbortSignal): Promise<GitStagedCommit>;
}

export interface GitPullRequest {
  readonly repo: string;
  readonly paths?: readonly string[] | undefined;
  readonly overwrite: boolean;
}

export interface GitPullAnswer {
  readonly repo: string;
  readonly branch: string;
  /** The directory that mirrors the repository. */
  readonly at: string;
  /** Null if the branch does not exist yet. */
  readonly commit: string | null;
  readonly created: readonly string[];
  readonly replaced: readonly string[];
  readonly unchanged: number;
  readonly conflicts: readonly string[];
  readonly skipped: readonly { readonly path: string; readonly why: string }[];
}

export interface GitStageRequest {
  readonly repo: string;
  readonly files: readonly string[];
  readonly message: string;
}

export interface GitStagedCommit {
  readonly commit: string;
  readonly repo: string;
  readonly branch: string;
  readonly message: string;
  /** The first of them. */
  readonly files: readonly { readonly path: string; readonly change: "added" | "modified" | "deleted" }[];
  readonly fileCount: number;
}

export interface GitStageAnswer extends GitStagedCommit {
  readonly diff: string;
}

export interface CommitAnswer {
  readonly changes: readonly CommittedChange[];
  /** The person's decision; null if no approval was needed. */
  readonly decision: { readonly outcome: "approved" | "denied" | "timed_out"; readonly reason: string } | null;
}

export interface CommittedChange {
  /** Virtual. */
  readonly path: string;
  readonly kind: "create" | "modify" | "delete";
  readonly outcome: "applied" | "refused" | "conflict" | "denied" | "held";
  /** Why it was not applied. */
  readonly reason: string | null;
}

export interface AgreementRequest {
  readonly operation: "write" | "delete";
  /** Virtual. */
  readonly path: string;
  /** What would change, for the person who decides. */
  readonly diff: string;
  /** What the diff shows completely. */
  readonly covered: readonly CoveredEffect[];
  /** What of it programs of the host would execute. */
  readonly hostExecuted: readonly HostExecuted[];
}

/** A part of an operation that the person saw completely, so that it is not asked about again when it is applied. */
export type CoveredEffect = CoveredWrite | { readonly operation: "delete"; readonly path: VirtualPath };

export interface CoveredWrite {
  readonly operation: "write";
  readonly path: VirtualPath;
  /** SHA-256 of the content that the diff starts from. Null: the diff shows all of the new content. */
  readonly before: string | null;
  /** SHA-256 of the new content. */
  readonly after: string;
  /** The permission bits that were shown. Null: none. */
  readonly mode: number | null;
}

export interface ExecToolRequest {
  readonly command: string;
  readonly cwd?: string | undefined;
  readonly env?: Readonly<Record<string, string>> | undefined;
  readonly stdin?: string | undefined;
  /** Only these of the hosts of the run, each as `host:port`, while the command runs. Absent: all of them. */
  readonly network?: readonly string[] | undefined;
  /** Only the registries of these presets of the run's network, beside the hosts of `network`. */
  readonly packages?: readonly PackageKind[] | undefined;
  /** What a shell rule grants this command beyond the worker's others. Set by the check of the command, and by no caller. */
  readonly granted?: true | readonly string[] | undefined;
  readonly timeoutMs?: number | undefined;
}

export interface ExecToolAnswer {
  /** The statuses of a run. */
  readonly status: string;
  readonly exitCode: number | null;
  readonly signal: string | null;
  readonly stdout: string;
  readonly stderr: string;
  /** True if the middle of an output was left out; a file holds all of it. */
  readonly cut: boolean;
  readonly hints: readonly string[];
  /** True if the cell was replaced: /tmp, the home directory and running programs are lost. */
  readonly cellReplaced: boolean;
  readonly durationMs: number;
}

export type AccessToolRequest =
  | { readonly path: string; readonly mode: "read" | "write" }
  | { readonly host: string; readonly reason?: string | undefined };

export type AccessToolAnswer =
  | { readonly granted: true; readonly host: string; readonly scope: "once" | "tree" | "session" | "had" }
  | { readonly granted: true; readonly path: string; readonly scope: "tree" | "session" | "had" }
  | { readonly granted: false; readonly code: string; readonly message: string };

export interface CallToolRequest {
  readonly worker: string;
  readonly input?: unknown;
  readonly attachments: readonly { readonly path: string; readonly name?: string }[];
}

export interface CallToolAnswer {
  readonly status: string;
  readonly output: unknown;
  readonly error: { readonly code: string; readonly message: string } | null;
  /** The whole result. */
  readonly result: Readonly<Record<string, unknown>>;
}
