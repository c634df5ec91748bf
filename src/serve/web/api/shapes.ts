/* What the service answers with, as far as the page reads it. `/openapi.json` has all. */

export type Role = "read" | "decide" | "run" | "admin";

export interface CallerInfo {
  readonly name: string;
  readonly roles: readonly Role[];
  readonly version: string;
}

export interface Fault {
  readonly code: string;
  readonly message: string;
}

/** What a run could see and reach. */
export interface Held {
  readonly mounts: readonly { readonly path: string; readonly mode: "ro" | "rw" }[];
  /** Null: not recorded. */
  readonly network: "open" | readonly string[] | null;
  readonly secrets: readonly string[];
  /** Of an agent. */
  readonly tools: readonly string[] | null;
}

/** A run that another one called, as it was recorded. */
export interface Call {
  readonly run: string;
  readonly worker: string;
  readonly attachments: readonly string[];
  readonly queuedAt: string;
  readonly startedAt: string | null;
  readonly endedAt: string | null;
  readonly status: string;
  readonly exitCode: number | null;
  readonly signal: string | null;
  readonly error: Fault | null;
  readonly durationMs: number | null;
  readonly policy: string | null;
  readonly image: string | null;
  readonly model: string | null;
  readonly limits: Readonly<Record<string, number>> | null;
  readonly held: Held | null;
  readonly usage: { readonly cpuMs: number | null; readonly memoryBytesPeak: number | null } | null;
  readonly truncated: boolean;
  readonly changeset: { readonly id: string | null; readonly counts: Readonly<Record<string, number>> } | null;
  readonly network: Readonly<Record<string, unknown>> | null;
  readonly agent: Readonly<Record<string, unknown>> | null;
  readonly calls: readonly Call[];
}

/** A root run of the history. */
export interface Run extends Omit<Call, "run" | "attachments"> {
  readonly id: string;
  readonly project: string;
  readonly kind: "run" | "session";
  /** Of the whole tree; lists have the calls themselves only if they are asked for. */
  readonly callCount: number;
  readonly input: { readonly bytes: number; readonly sha256: string } | null;
  readonly attachments: readonly {
    readonly name: string;
    readonly bytes: number | null;
    readonly sha256: string | null;
  }[];
  readonly arguments: readonly string[];
  readonly continues: string | null;
  readonly leftOut: number;
  readonly stdout: { readonly bytes: number; readonly keptBytes: number };
  readonly stderr: { readonly bytes: number; readonly keptBytes: number };
}

/** What the service keeps of a run that it has started. */
export interface RunResult {
  readonly run: string;
  readonly status: string;
  readonly output: unknown;
  readonly truncated: boolean;
  readonly violations: readonly { readonly code: string; readonly message: string }[];
  readonly changes: readonly { readonly path: string; readonly outcome: string; readonly reason?: string | null }[];
}

export interface Question {
  readonly run: string;
  readonly root: string;
  readonly worker: string;
  readonly through?: readonly string[];
  readonly operations: readonly string[];
  readonly paths: readonly string[];
  readonly directory?: string;
  readonly wider?: readonly string[];
  readonly callee?: string;
  readonly input?: string;
  readonly command?: string;
  readonly why?: string;
  readonly diff?: string;
  readonly lastingOnly?: boolean;
  readonly to?: string;
  readonly reaches?: readonly string[];
  readonly runs?: number;
}

export interface Approval {
  readonly id: string;
  readonly project: string;
  readonly state: "waiting" | "decided";
  readonly digest: string;
  readonly askedAt: string;
  readonly question: Question;
  readonly decidedAt: string | null;
  readonly outcome: string | null;
  readonly scope: string | null;
  readonly by: string | null;
  /** Where it was decided; absent in answers of older services. */
  readonly via?: string | null;
  readonly answers?: readonly ("once" | "tree" | "no")[];
}

export interface ListedChangeset {
  readonly id: string;
  readonly run: string;
  readonly worker: string;
  readonly project: string;
  readonly createdAt: string;
  readonly applying: boolean;
  readonly counts: Readonly<Record<string, number>>;
}

interface ChangedPlace {
  readonly path: string;
  readonly kind: "create" | "modify" | "delete";
  readonly type: "file" | "directory" | "link";
}

/** One path of a changeset, for a decision. */
export interface ReviewedPart extends ChangedPlace {
  readonly indexes: readonly number[];
  readonly lines: readonly string[];
  readonly added: number;
  readonly removed: number;
  readonly bytes: number;
  readonly ruled: { readonly outcome: string; readonly reason: string } | null;
}

export interface Review {
  readonly id: string;
  readonly run: string;
  readonly worker: string;
  readonly project: string;
  readonly createdAt: string;
  readonly digest: string;
  readonly waiting: number;
  readonly total: { readonly files: number; readonly added: number; readonly removed: number; readonly bytes: number };
  readonly parts: readonly ReviewedPart[];
  readonly unfit: readonly (ChangedPlace & {
    readonly index: number;
    readonly outcome: string;
    readonly reason: string;
  })[];
  readonly notShown: number;
}

export interface AppliedChangeset {
  readonly id: string;
  readonly changes: readonly { readonly path: string; readonly outcome: string; readonly reason: string | null }[];
  readonly left: number;
}

export interface Fleet {
  readonly id: string;
  readonly project: string;
  readonly state: string;
  readonly createdAt: string;
  readonly endedAt: string | null;
  readonly why: string | null;
  readonly counts: {
    readonly total: number;
    readonly queued: number;
    readonly running: number;
    readonly done: number;
    readonly failed: number;
  };
  readonly spec: { readonly worker: string };
}

export interface Project {
  readonly name: string;
}

export interface ListedWorker {
  readonly name: string;
  readonly description: string;
  readonly image: string;
  readonly model: string | null;
  readonly policy: string | null;
  readonly calls: readonly string[];
}
