import type { GuardedFiles } from "../files/guarded.ts";

/** What tools act with: one worker's sandbox, files, cell and calls. Given by whoever runs them. */
export interface Hands {
  readonly files: GuardedFiles;
  /** Asks for what a person must agree to; rejects with `ToolRefusal` where nobody does. */
  agree(request: AgreementRequest, signal: AbortSignal): Promise<void>;
  exec(request: ExecToolRequest, signal: AbortSignal): Promise<ExecToolAnswer>;
  /** Answers with the child's RunResult as plain JSON; a refusal is one. */
  call(request: CallToolRequest, signal: AbortSignal): Promise<CallToolAnswer>;
}

export interface AgreementRequest {
  readonly operation: "write" | "delete";
  /** Virtual. */
  readonly path: string;
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
