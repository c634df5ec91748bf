import type { Fault, Fleet } from "../../api/shapes.ts";

export interface FailureGroup {
  readonly count: number;
  readonly status: string;
  readonly code: string;
  readonly text: string;
  /** The key of one of them. */
  readonly example: string;
}

export interface FleetDetails extends Omit<Fleet, "counts" | "spec"> {
  readonly counts: Fleet["counts"] & { readonly pending: number };
  readonly spec: Fleet["spec"] & {
    readonly source: string;
    readonly policy: string | null;
    readonly concurrency: number | "auto";
    readonly reuse: string;
    readonly retries: number;
  };
  readonly summary: readonly { readonly status: string; readonly code: string | null; readonly count: number }[];
  readonly failures: readonly FailureGroup[];
  readonly recentRate: number | null;
  readonly leftMs: number | null;
}

export interface Item {
  readonly index: number;
  readonly key: string;
  readonly state: "queued" | "running" | "done";
  readonly status: string | null;
  readonly code: string | null;
  readonly attempt: number;
  readonly run: string | null;
  readonly endedAt: string | null;
  readonly durationMs: number | null;
}

interface Attempt {
  readonly attempt: number;
  readonly status: string;
  readonly run: string | null;
  readonly exitCode: number | null;
  readonly error: Fault | null;
  readonly endedAt: string;
  readonly durationMs: number;
}

export interface ItemDetails {
  readonly key: string;
  readonly state: Item["state"];
  readonly request: {
    readonly input?: unknown;
    readonly attachments: readonly string[];
    readonly fields?: Readonly<Record<string, unknown>>;
  };
  readonly result:
    | (Attempt & {
        readonly output: unknown;
        readonly memoryBytesPeak: number | null;
        readonly changeset?: { readonly id: string | null };
      })
    | null;
  readonly streams: { readonly stdout: string; readonly stderr: string };
  readonly attempts: readonly Attempt[];
}
