/** What an agent does, for people to watch. Texts are the model's, and as untrusted as what it has read. */
export type AgentEvent =
  | { readonly kind: "step"; readonly step: number }
  /** A piece of what the model says, as it comes. */
  | { readonly kind: "text"; readonly piece: string }
  /** What it said so far is void: the answer broke off, and is asked for again. */
  | { readonly kind: "retry"; readonly reason: string; readonly waitMs: number }
  | { readonly kind: "call"; readonly id: string; readonly tool: string; readonly input: unknown }
  | {
      readonly kind: "called";
      readonly id: string;
      readonly tool: string;
      /** Null where it was not refused. */
      readonly code: string | null;
    };
