/* What `corral explain` says of a worker, as far as the picture shows it. */

export type Mode = "ro" | "rw";

export interface Mount {
  readonly path: string;
  readonly mode: Mode;
  readonly suffixes?: readonly string[];
  readonly maxFileBytes?: number;
  readonly approval?: { readonly write: string; readonly delete: string };
  readonly stage?: true;
  readonly discard?: true;
}

export type Network =
  | boolean
  | { readonly allow: readonly { readonly to: string; readonly methods?: readonly string[] }[] };

export interface Narrowing {
  readonly by: string;
  readonly kind: string;
  readonly path?: string;
  readonly limit?: string;
  readonly from?: unknown;
  readonly to?: unknown;
}

export interface Sandbox {
  readonly mounts: readonly Mount[];
  readonly withheld?: readonly Mount[];
  readonly network: Network;
  readonly secrets?: readonly string[];
  readonly limits: Readonly<Record<string, number | null>>;
  readonly policy: {
    readonly name: string;
    readonly description?: string;
    readonly hardening: Readonly<Record<string, unknown>>;
  };
}

export interface ExplainedRun {
  readonly worker: string;
  readonly path: readonly string[];
  readonly sandbox: Sandbox | null;
  readonly narrowings: readonly Narrowing[];
  readonly plan: { readonly image: { readonly name: string } } | null;
  readonly refused: readonly { readonly code: string; readonly message: string }[] | null;
  readonly agent: { readonly model: string; readonly tools: readonly string[] } | null;
  readonly notes: readonly string[];
  readonly calls: readonly ExplainedRun[];
}

export interface Explanation {
  readonly worker: string;
  readonly tree: ExplainedRun;
  readonly notes: readonly string[];
}
