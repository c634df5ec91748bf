/** What happens on a machine that runs items of fleets. */
export type WorkEvent =
  /** The container engine or the queue is away: it tries again until that is there, or it is stopped. */
  | { readonly type: "waiting"; readonly for: "engine" | "queue"; readonly why: string }
  | { readonly type: "joined"; readonly name: string; readonly slots: number; readonly labels: readonly string[] }
  /** Its items are taken from now on. */
  | { readonly type: "taking"; readonly fleet: string; readonly worker: string }
  /** Why none of its items are taken. */
  | { readonly type: "not_taking"; readonly fleet: string; readonly why: string }
  /** It has ended, or its coordinator runs no more of it. */
  | { readonly type: "closed"; readonly fleet: string }
  | ({ readonly type: "started" } & AttemptName)
  | ({ readonly type: "delivered"; readonly status: string; readonly durationMs: number } & AttemptName)
  /** Another attempt counts meanwhile: nothing of this one was recorded. */
  | ({ readonly type: "late"; readonly reason: string } & AttemptName)
  /** `hasBegun`: its worker had begun. */
  | ({ readonly type: "given_back"; readonly why: string; readonly hasBegun: boolean } & AttemptName)
  /** For the user only: it may contain host paths. */
  | { readonly type: "trouble"; readonly detail: string }
  /** Its lease has ended: everything that ran is ended, and other processes run it again. */
  | { readonly type: "lost" }
  | { readonly type: "draining"; readonly why: string };

export interface AttemptName {
  readonly fleet: string;
  readonly index: number;
  readonly key: string;
  /** From 1. */
  readonly attempt: number;
}

export type OnWorkEvent = (event: WorkEvent) => void;
