// biome-ignore-all format: this file is made.
/* What the service answers with. Made by scripts/page-shapes.ts from the OpenAPI document; not to be changed by hand. */

export type AgentReport = {
  readonly model: string;
  readonly steps: number;
  readonly tokens: {
    readonly input: number;
    readonly output: number;
    readonly estimated: boolean;
  };
  /** Null: the project gives no price for some of it. */
  readonly costUsd: number | null;
  /** The id of a run. */
  readonly continues?: string;
};

export type AllowedTraffic = {
  readonly to: string;
  readonly connections: number;
  readonly requests: number;
  readonly up: number;
  readonly down: number;
};

export type AppliedChangeset = {
  /** The id of a changeset. */
  readonly id: string;
  readonly changes: readonly Change[];
  readonly left: number;
};

export type Approval = {
  /** The id of a question. */
  readonly id: string;
  /** A name of /v1/projects. */
  readonly project: string;
  readonly state: "waiting" | "decided";
  /** SHA-256 of what was shown. */
  readonly digest: string;
  /** ISO 8601, UTC. */
  readonly askedAt: string;
  readonly question: Question;
  /** What of its names may be taken for something else, in words. */
  readonly lookAlike: readonly string[];
  readonly decidedAt: string | null;
  readonly outcome: "approved" | "denied" | "timed_out" | "withdrawn" | null;
  readonly scope: "once" | "tree" | "session" | null;
  /** What may be answered. */
  readonly answers: readonly ("once" | "tree" | "no")[];
  /** Where else it is asked; board: nowhere. */
  readonly at: "terminal" | "client" | "program" | "board";
  /** Of a grant: what was chosen in place of the requested one. */
  readonly directory: string | null;
  /** Who decided: the name of a token or of a user. */
  readonly by: string | null;
  /** Where it was decided: where it was asked, with `corral approvals`, or here. */
  readonly via: "terminal" | "client" | "program" | "command" | "service" | null;
};

export type ApprovalPage = {
  readonly approvals: readonly Approval[];
  /** Null: there are no more. */
  readonly next: string | null;
};

export type Attached = {
  readonly name: string;
  readonly bytes: number | null;
  readonly sha256: string | null;
};

export type AuditPage = {
  readonly records: readonly AuditRecord[];
  readonly foreign: number;
  readonly next: number | null;
};

export type AuditRecord = {
  readonly seq: number;
  /** ISO 8601, UTC. */
  readonly at: string;
  readonly type: string;
  readonly run?: string;
  readonly root?: string;
  readonly worker?: string;
  /** Of a tool that was used. */
  readonly ok?: boolean;
};

export type CalledRun = {
  /** The id of a run. */
  readonly run: string;
  readonly worker: string;
  /** That of its result; running, interrupted or closed. */
  readonly status: string;
  /** ISO 8601, UTC. */
  readonly queuedAt: string;
  readonly startedAt: string | null;
  readonly endedAt: string | null;
  readonly exitCode: number | null;
  readonly signal: string | null;
  readonly error: RunError | null;
  readonly durationMs: number | null;
  readonly policy: string | null;
  readonly image: string | null;
  /** Of an agent. */
  readonly model: string | null;
  readonly limits: Readonly<Record<string, number>> | null;
  /** What it could see and reach, in the paths of its container; null before it started. */
  readonly held: Held | null;
  readonly usage: Usage | null;
  /** It printed more than its limit. */
  readonly truncated: boolean;
  /** What it wrote in staged mounts; null if nothing. */
  readonly changeset: ReportedChangeset | null;
  /** What it did on its network, as in its result; null without an allow list. */
  readonly network: Readonly<Record<string, unknown>> | null;
  /** What an agent used, as in its result. */
  readonly agent: Readonly<Record<string, unknown>> | null;
  readonly attachments: readonly string[];
  readonly calls: readonly CalledRun[];
};

export type Caller = {
  readonly name: string;
  readonly roles: readonly ("metrics" | "read" | "decide" | "run" | "admin")[];
  readonly version: string;
};

export type Change = {
  readonly index: number;
  readonly path: string;
  readonly kind: "create" | "modify" | "delete";
  readonly type: "file" | "directory" | "link";
  readonly outcome: string;
  readonly reason: string | null;
  /** Of a file that was written. */
  readonly bytes?: number | null;
  /** Why a program of the host would act on it by itself, so that no general yes covers it. */
  readonly hostExecuted?: string | null;
};

export type Changeset = {
  /** The id of a changeset. */
  readonly id: string;
  readonly run: string;
  readonly worker: string;
  /** A name of /v1/projects. */
  readonly project: string;
  /** ISO 8601, UTC. */
  readonly createdAt: string;
  /** The root of its tree of runs. */
  readonly root: string;
  /** SHA-256 of what was shown. */
  readonly digest: string;
  readonly changes: readonly Change[];
  /** A unified diff with the files as they are now. */
  readonly diff: string;
  /** Commits of git that the worker made and that wait, in words, which are the worker's own. */
  readonly commits: readonly string[];
  /** What of its names may be taken for something else, in words. */
  readonly lookAlike: readonly string[];
};

export type ChangesetList = {
  readonly changesets: readonly ListedChangeset[];
  /** Whether there are more, which this list leaves out: ask with a filter, or a larger limit. */
  readonly more: boolean;
};

export type DeniedTraffic = {
  readonly to: string;
  readonly count: number;
  readonly reason: string;
  readonly detail: string;
};

export type EarlierAttempt = {
  readonly attempt: number;
  readonly status: string;
  readonly run: string | null;
  /** That ran it; absent: the process that owned the fleet. */
  readonly machine?: string;
  readonly exitCode: number | null;
  readonly error: RunError | null;
  /** The last line of its standard error that is not empty. */
  readonly stderrLine: string | null;
  readonly startedAt: string | null;
  /** ISO 8601, UTC. */
  readonly endedAt: string;
  readonly durationMs: number;
};

export type Enforcement = {
  readonly driver: string;
  readonly requested: Readonly<Record<string, string>>;
  readonly actual: Readonly<Record<string, string>>;
  readonly socketMemory?: string;
};

export type ExplainedRun = {
  readonly worker: string;
  /** From the worker that is run to this one. */
  readonly path: readonly string[];
  readonly sandbox: ExplainedSandbox | null;
  readonly narrowings: readonly Narrowing[];
  readonly plan: {
    readonly image: {
      readonly name: string;
    };
  } | null;
  /** Null: it would run. */
  readonly refused: readonly {
    readonly code: string;
    readonly message: string;
  }[] | null;
  readonly agent: {
    readonly model: string;
    readonly tools: readonly string[];
  } | null;
  readonly notes: readonly string[];
  readonly calls: readonly ExplainedRun[];
};

export type ExplainedSandbox = {
  readonly mounts: readonly Mount[];
  /** Shown only after an approval. */
  readonly withheld?: readonly Mount[];
  /** true: every host; false: none. */
  readonly network: boolean | {
    readonly allow: readonly {
      readonly to: string;
      readonly methods?: readonly string[];
    }[];
  };
  readonly secrets?: readonly string[];
  readonly limits: Readonly<Record<string, number>>;
  readonly policy: {
    readonly name: string;
    readonly description?: string;
  };
};

export type Explanation = {
  readonly worker: string;
  readonly tree: ExplainedRun;
  readonly notes: readonly string[];
};

export type FailureGroup = {
  readonly count: number;
  readonly status: string;
  readonly code: string;
  /** The last words of one of them. */
  readonly text: string;
  /** The key of that one. */
  readonly example: string;
};

export type Fault = {
  readonly error: FaultBody;
};

export type FaultBody = {
  /** docs/troubleshooting.md has all. */
  readonly code: string;
  readonly message: string;
  readonly problems?: readonly Problem[];
  readonly violations?: readonly Violation[];
};

export type Finding = {
  readonly what: string;
  readonly state: "ok" | "warning" | "missing";
  readonly detail: string;
};

export type Fleet = {
  /** The id of a fleet. */
  readonly id: string;
  /** A name of /v1/projects. */
  readonly project: string;
  /** loading, running, paused, interrupted, pending, done or cancelled. */
  readonly state: string;
  /** ISO 8601, UTC. */
  readonly createdAt: string;
  readonly endedAt: string | null;
  readonly why: string | null;
  readonly counts: FleetCounts;
  readonly spec: FleetSpec;
};

export type FleetCounts = {
  readonly total: number;
  readonly queued: number;
  readonly running: number;
  readonly done: number;
  readonly failed: number;
  /** Their changes wait for a decision. */
  readonly pending: number;
};

export type FleetItem = {
  readonly index: number;
  readonly key: string;
  readonly state: "queued" | "running" | "done";
  readonly status: string | null;
  readonly code: string | null;
  readonly attempt: number;
  readonly run: string | null;
  /** The machine that runs it, or ran its last attempt; null: the process that owns the fleet, or none. */
  readonly machine: string | null;
  readonly endedAt: string | null;
  readonly durationMs: number | null;
};

export type FleetList = {
  readonly fleets: readonly Fleet[];
  /** Whether there are more, which this list leaves out: ask with a filter, or a larger limit. */
  readonly more: boolean;
};

export type FleetMachine = {
  /** Differs for machines with the same name. */
  readonly id: string;
  /** The name that it was started with. */
  readonly name: string;
  readonly labels: readonly string[];
  /** Items that it runs at the same time. */
  readonly slots: number;
  readonly version: string;
  /** When its lease was last renewed. */
  readonly seenAt: string;
  /** Items that it delivered per second in the last minute; null if none. */
  readonly recentRate: number | null;
  /** Items of this fleet that it runs. */
  readonly running: number;
  /** Items of all fleets that it runs. */
  readonly runningInAll: number;
  /** Why it takes none of this fleet; null: it does, or has not checked yet. */
  readonly why: string | null;
};

export type FleetSpec = {
  readonly version: 1;
  readonly worker: string;
  /** Where its items come from, for people. */
  readonly source: string;
  readonly policy: string | null;
  readonly concurrency: number | "auto";
  readonly reuse: string;
  readonly retries: number;
  readonly maxFailures: number | null;
  readonly timeoutMs: number | null;
  readonly cache: boolean;
  /** Which other machines may run its items; null: none. */
  readonly machines?: {
    readonly needs: readonly string[];
    readonly priority: number;
    readonly weight: number;
  } | null;
};

export type Grant = {
  readonly id: string;
  /** A name of /v1/projects. */
  readonly project: string;
  /** The id of a run. */
  readonly run: string;
  /** The root of its tree of runs. */
  readonly root: string;
  readonly worker: string;
  readonly through: readonly string[];
  /** ISO 8601, UTC. */
  readonly grantedAt: string;
  readonly scope: string;
  /** What was granted, as the worker knows it. */
  readonly directory?: string;
  /** Of a directory. */
  readonly mode?: "read" | "write";
  /** The host and port that were granted. */
  readonly to?: string;
};

export type Held = {
  readonly mounts: readonly {
    readonly path: string;
    readonly mode: "ro" | "rw";
  }[];
  readonly network: "open" | readonly string[] | null;
  readonly secrets: readonly string[];
  readonly tools: readonly string[] | null;
};

export type HostExecuted = {
  readonly path: string;
  readonly why: string;
};

export type ItemPage = {
  readonly items: readonly FleetItem[];
  readonly next: number | null;
};

export type ItemResult = {
  readonly index: number;
  readonly key: string;
  readonly attempt: number;
  readonly status: string;
  readonly run: string | null;
  /** That ran it; absent: the process that owned the fleet. */
  readonly machine?: string;
  readonly exitCode: number | null;
  readonly error: RunError | null;
  /** The last line of its standard error that is not empty. */
  readonly stderrLine: string | null;
  readonly startedAt: string | null;
  /** ISO 8601, UTC. */
  readonly endedAt: string;
  readonly durationMs: number;
  readonly output: unknown;
  /** Its own: those of its line, or `path`. */
  readonly fields: Readonly<Record<string, unknown>>;
  readonly memoryBytesPeak: number | null;
  readonly changeset?: {
    readonly id: string | null;
    readonly counts: Readonly<Record<string, number>>;
  };
};

export type ListedChangeset = {
  /** The id of a changeset. */
  readonly id: string;
  readonly run: string;
  readonly worker: string;
  /** A name of /v1/projects. */
  readonly project: string;
  /** ISO 8601, UTC. */
  readonly createdAt: string;
  readonly applying: boolean;
  readonly counts: Readonly<Record<string, number>>;
};

export type Machine = {
  readonly ok: boolean;
  readonly findings: readonly Finding[];
};

export type MachineFleet = {
  /** The id of a fleet. */
  readonly fleet: string;
  /** A name of /v1/projects. */
  readonly project: string;
  readonly running: number;
  /** Why it takes none of this fleet; null: it does, or has not checked yet. */
  readonly why: string | null;
};

export type MachineList = {
  readonly machines: readonly QueueMachine[];
  /** Whether there are more: a list has at most 1000 machines, and there is no second part of it. */
  readonly more: boolean;
  /** Whether one of the projects has a queue that machines can reach. */
  readonly hasQueue: boolean;
};

export type Mount = {
  readonly path: string;
  readonly mode: "ro" | "rw";
  /** Only such files; absent: all. */
  readonly suffixes?: readonly string[];
  readonly maxFileBytes?: number;
  readonly approval?: {
    readonly write: string;
    readonly delete: string;
  };
  /** What is written waits as a changeset. */
  readonly stage?: true;
  /** What is written is dropped. */
  readonly discard?: true;
};

export type Narrowing = {
  readonly by: string;
  readonly kind: string;
  readonly path?: string;
  readonly limit?: string;
  readonly from?: unknown;
  readonly to?: unknown;
};

export type NetworkReport = {
  readonly allowed: readonly AllowedTraffic[];
  readonly denied: readonly DeniedTraffic[];
  /** Further hosts that are in none of the lists. */
  readonly unlisted: number;
};

export type Problem = {
  readonly message: string;
};

export type Project = {
  /** A name of /v1/projects. */
  readonly name: string;
};

export type ProjectList = {
  readonly projects: readonly Project[];
};

export type Question = {
  readonly run: string;
  readonly root: string;
  readonly worker: string;
  /** The workers from the root run down to this one. */
  readonly through?: readonly string[];
  readonly operations: readonly string[];
  readonly paths: readonly string[];
  /** Of a grant: what is requested. */
  readonly directory?: string;
  /** Of a grant: what may be granted instead, the nearest first. */
  readonly wider?: readonly string[];
  /** Of a grant: the host and port that are requested. */
  readonly to?: string;
  /** Of such a grant: what it reaches already. */
  readonly reaches?: readonly string[];
  readonly callee?: string;
  /** Of a call: its input as JSON, cut if it is long. */
  readonly input?: string;
  readonly command?: string;
  /** The command line alone, if `command` shows more than it. */
  readonly line?: string;
  /** The run is on this machine of the queue, which has written the texts. */
  readonly machine?: string;
  /** What programs of the host would act on by themselves: to be shown first. Only `once` covers it. */
  readonly hostExecuted?: readonly HostExecuted[];
  /** Often written by the worker, so it may be false. */
  readonly why?: string;
  /** A unified diff. */
  readonly diff?: string;
  /** Nothing is done with the answer now. */
  readonly lastingOnly?: boolean;
  /** How many runs wait for the answer, which is for all of them. */
  readonly runs?: number;
  /** Those runs, `run` first, each with the root of its tree. */
  readonly waiting?: readonly WaitingRun[];
};

export type QueueMachine = {
  /** Differs for machines with the same name. */
  readonly id: string;
  /** The name that it was started with. */
  readonly name: string;
  readonly labels: readonly string[];
  /** Items that it runs at the same time. */
  readonly slots: number;
  readonly version: string;
  /** When its lease was last renewed. */
  readonly seenAt: string;
  /** Items that it delivered per second in the last minute; null if none. */
  readonly recentRate: number | null;
  /** ISO 8601, UTC. */
  readonly joinedAt: string;
  /** Items that it runs, those of projects that the service does not have included. */
  readonly running: number;
  readonly fleets: readonly MachineFleet[];
};

export type ReportedChangeset = {
  readonly id: string | null;
  readonly counts: Readonly<Record<string, number>>;
};

export type ResultUsage = {
  readonly cpuMs: number | null;
  readonly memoryBytesPeak: number | null;
  readonly outOfMemory: boolean | null;
};

export type Review = {
  /** The id of a changeset. */
  readonly id: string;
  readonly run: string;
  readonly worker: string;
  /** A name of /v1/projects. */
  readonly project: string;
  /** ISO 8601, UTC. */
  readonly createdAt: string;
  /** SHA-256 of what was shown. */
  readonly digest: string;
  /** The project's approval mode. */
  readonly mode: string;
  /** How many changes can still be applied. */
  readonly waiting: number;
  readonly total: {
    readonly files: number;
    readonly added: number;
    readonly removed: number;
    readonly bytes: number;
  };
  /** What a user decides on: first what programs of the host would execute. */
  readonly parts: readonly ReviewedPart[];
  /** What cannot be applied now. */
  readonly unfit: readonly {
    readonly path: string;
    readonly kind: "create" | "modify" | "delete";
    readonly type: "file" | "directory" | "link";
    readonly index: number;
    readonly outcome: "refused" | "conflict";
    readonly reason: string;
  }[];
  /** Changes beyond the limit of a diff. */
  readonly notShown: number;
  /** Commits of git that the worker made and that wait, in words, which are the worker's own. */
  readonly commits: readonly string[];
  /** What of its names may be taken for something else, in words. */
  readonly lookAlike: readonly string[];
};

export type ReviewedPart = {
  readonly path: string;
  readonly kind: "create" | "modify" | "delete";
  readonly type: "file" | "directory" | "link";
  readonly files: number;
  readonly added: number;
  readonly removed: number;
  readonly bytes: number;
  /** For `which` of apply. */
  readonly indexes: readonly number[];
  /** Why a program of the host would act on it by itself: then `apply` has to name its path. */
  readonly hostExecuted: string | null;
  /** A unified diff; no line has a control character. */
  readonly lines: readonly string[];
  /** What the project's rules decide; null: a user decides. */
  readonly ruled: {
    readonly outcome: string;
    readonly reason: string;
    readonly scope: string;
    /** Of a denial: a user can still approve it. */
    readonly unasked?: boolean;
  } | null;
};

export type Run = {
  /** The id of a run. */
  readonly id: string;
  /** A name of /v1/projects. */
  readonly project: string;
  readonly kind: "run" | "session";
  readonly worker: string;
  /** That of its result; running, interrupted or closed. */
  readonly status: string;
  /** ISO 8601, UTC. */
  readonly queuedAt: string;
  readonly startedAt: string | null;
  readonly endedAt: string | null;
  readonly exitCode: number | null;
  readonly signal: string | null;
  readonly error: RunError | null;
  readonly durationMs: number | null;
  readonly policy: string | null;
  readonly image: string | null;
  /** Of an agent. */
  readonly model: string | null;
  readonly limits: Readonly<Record<string, number>> | null;
  /** What it could see and reach, in the paths of its container; null before it started. */
  readonly held: Held | null;
  readonly usage: Usage | null;
  /** It printed more than its limit. */
  readonly truncated: boolean;
  /** What it wrote in staged mounts; null if nothing. */
  readonly changeset: ReportedChangeset | null;
  /** What it did on its network, as in its result; null without an allow list. */
  readonly network: Readonly<Record<string, unknown>> | null;
  /** What an agent used, as in its result. */
  readonly agent: Readonly<Record<string, unknown>> | null;
  readonly input: {
    readonly bytes: number;
    readonly sha256: string;
  } | null;
  readonly arguments: readonly string[];
  readonly continues: string | null;
  readonly attachments: readonly Attached[];
  readonly stdout: StreamSize;
  readonly stderr: StreamSize;
  /** Calls that are not in the record. */
  readonly leftOut: number;
  /** Calls of the whole tree that are in the record. */
  readonly callCount: number;
  readonly calls: readonly CalledRun[];
};

export type RunError = {
  readonly code: string;
  readonly message: string;
};

export type RunList = {
  readonly runs: readonly Run[];
  readonly unreadable: number;
  /** Whether there are more, which this list leaves out: ask with a filter, or a larger limit. */
  readonly more: boolean;
};

export type RunResult = {
  /** The id of a run. */
  readonly run: string;
  readonly worker: string;
  readonly status: string;
  readonly exitCode: number | null;
  readonly signal: string | null;
  readonly output: unknown;
  readonly stdout: string;
  readonly stderr: string;
  readonly truncated: boolean;
  readonly violations: readonly Violation[];
  readonly changes: readonly SettledChange[];
  /** What it wrote in staged mounts; null if nothing. */
  readonly changeset: ReportedChangeset | null;
  readonly durationMs: number;
  readonly usage: ResultUsage;
  readonly network?: NetworkReport;
  readonly agent?: AgentReport;
  /** What its plan requested, and what its container reported before it began. */
  readonly enforcement: Enforcement | null;
  readonly error: RunError | null;
  readonly calls: readonly RunResult[];
};

export type Session = {
  /** The id of a run. */
  readonly id: string;
  /** A name of /v1/projects. */
  readonly project: string;
  readonly worker: string;
  readonly tools: readonly string[];
  /** ISO 8601, UTC. */
  readonly openedAt: string;
};

export type SessionTool = {
  readonly name: string;
  readonly title: string;
  readonly description: string;
  /** JSON Schema. */
  readonly inputSchema: Readonly<Record<string, unknown>>;
  readonly readOnly: boolean;
};

export type SettledChange = {
  readonly path: string;
  readonly kind: "create" | "modify" | "delete";
  readonly type: "file" | "directory" | "link";
  /** Of a file that was written. */
  readonly bytes: number | null;
  readonly outcome: string;
  readonly reason: string | null;
};

export type SettledSession = {
  /** The id of a run. */
  readonly id: string;
  readonly changes: readonly SettledChange[];
  /** What it wrote in staged mounts; null if nothing. */
  readonly changeset: ReportedChangeset | null;
  readonly error: RunError | null;
};

export type ShownFleet = {
  /** The id of a fleet. */
  readonly id: string;
  /** A name of /v1/projects. */
  readonly project: string;
  /** loading, running, paused, interrupted, pending, done or cancelled. */
  readonly state: string;
  /** ISO 8601, UTC. */
  readonly createdAt: string;
  readonly endedAt: string | null;
  readonly why: string | null;
  readonly counts: FleetCounts;
  readonly spec: FleetSpec;
  readonly summary: readonly {
    readonly status: string;
    readonly code: string | null;
    readonly count: number;
  }[];
  /** Failed items by their last words; the 20 largest groups. */
  readonly failures: readonly FailureGroup[];
  /** The ten that took longest. */
  readonly slowest: readonly ItemResult[];
  /** The last ten that failed, the newest first. */
  readonly lastFailures: readonly ItemResult[];
  /** Items per second, of late; null: it does not run, or none ended. */
  readonly recentRate: number | null;
  readonly leftMs: number | null;
  /** Those of the queue; empty if no other machine may run its items, or if it has ended. */
  readonly machines: readonly FleetMachine[];
};

export type ShownItem = {
  /** The id of a fleet. */
  readonly fleet: string;
  readonly key: string;
  readonly state: "queued" | "running" | "done";
  /** The machine that runs it, or ran its last attempt; null: the process that owns the fleet, or none. */
  readonly machine: string | null;
  readonly request: {
    readonly input?: unknown;
    readonly attachments: readonly string[];
    readonly fields?: Readonly<Record<string, unknown>>;
  };
  readonly result: ItemResult | null;
  readonly streams: {
    readonly stdout: string;
    readonly stderr: string;
  };
  /** Before it was retried in place; the newest first. */
  readonly attempts: readonly EarlierAttempt[];
};

export type StartedFleet = {
  /** The id of a fleet. */
  readonly fleet: string;
  /** A name of /v1/projects. */
  readonly project: string;
};

export type StartedRun = {
  /** The id of a run. */
  readonly run: string;
  /** A name of /v1/projects. */
  readonly project: string;
};

export type StoppedRun = {
  /** The id of a run. */
  readonly run: string;
  readonly outcome: "ended" | "stopped" | "asked";
  readonly status: string;
};

export type StreamSize = {
  readonly bytes: number;
  readonly keptBytes: number;
};

export type ToolAnswer = {
  readonly ok: true;
  readonly text: string;
  readonly data: Readonly<Record<string, unknown>>;
  readonly image?: {
    readonly mimeType: string;
    readonly base64: string;
  };
};

export type ToolRefusal = {
  readonly ok: false;
  readonly code: string;
  readonly message: string;
  readonly data: Readonly<Record<string, unknown>>;
};

export type Usage = {
  readonly cpuMs: number | null;
  readonly memoryBytesPeak: number | null;
};

export type Violation = {
  readonly code: string;
  readonly message: string;
};

export type WaitingRun = {
  readonly run: string;
  readonly root: string;
};

export type Worker = {
  readonly name: string;
  readonly description: string;
  readonly image: string;
  readonly model: string | null;
  readonly policy: string | null;
  readonly calls: readonly string[];
};

export type WorkerList = {
  readonly workers: readonly Worker[];
  readonly problems: readonly string[];
};
