/** How a process waits for its database, for as long as that is away. Without it each statement waits for a minute. */
export interface WhileAway {
  /** Ends the wait: statements then fail, as long as the database does not answer. */
  readonly over: AbortSignal;
  /** Called with the reason, once for each outage that lasts longer than a restart. */
  readonly onAway: (why: string) => void;
  /** Called when the database answers again after that. */
  readonly onBack: () => void;
}
