import type { GuardedFiles } from "../files/guarded.ts";

/** What tools act with: one worker's sandbox, files, cell and calls. Given by whoever runs them. */
export interface Hands {
  readonly files: GuardedFiles;
  /** Asks for what a person must agree to; rejects with `ToolRefusal` where nobody does. */
  agree(request: AgreementRequest, signal: AbortSignal): Promise<void>;
  exec(request: ExecToolRequest, signal: AbortSignal): Promise<ExecToolAnswer>;
  /** Answers with the child's RunResult as plain JSON; a refusal is one. */
  call(request: CallToolRequest, signal: AbortSignal): Promise<CallToolAnswer>;
  /** Applies what was changed so far in directories whose changes wait, as far as somebody agrees to it. */
  commit(signal: AbortSignal): Promise<CommitAnswer>;
  readonly git: GitHands;
}

/** The repositories that a worker may use. Each operation rejects with `ToolRefusal` for what may not be done. */
export interface GitHands {
  /** Writes files of a repository into the worker's directories; where that asks, it is asked about once for all of them. */
  pull(request: GitPullRequest, signal: AbortSignal): Promise<GitPullAnswer>;
  /** Makes a commit that stays on this machine. */
  stage(request: GitStageRequest, signal: AbortSignal): Promise<GitStageAnswer>;
  /** Sends a staged commit to the repository, once somebody has agreed to it. */
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
  /** Null where the branch does not exist yet. */
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
  /** What was decided where somebody had to be asked; null where nobody had to be. */
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
  /** What would be changed, for whoever is asked. */
  readonly diff?: string;
  /** The content that the diff is to, in SHA-256: what did not change of it is not shown. Null: all of the new one is. */
  readonly before?: string | null;
}

export interface ExecToolRequest {
  readonly command: string;
  readonly cwd?: string | undefined;
  readonly env?: Readonly<Record<string, string>> | undefined;
  readonly stdin?: string | undefined;
  readonly timeoutMs?: number | undefined;
}

export interface ExecToolAnswer {
  /** The statuses of a run. */
  readonly status: string;
  readonly exitCode: number | null;
  readonly signal: string | null;
  readonly stdout: string;
  readonly stderr: string;
  /** True where the middle of an output is only in a file. */
  readonly cut: boolean;
  readonly hints: readonly string[];
  /** True where what was in memory (/tmp, home, running programs) is gone, and the next command begins afresh. */
  readonly cellReplaced: boolean;
  readonly durationMs: number;
}

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
