/** What an agent does, for people to watch. Texts come from the model and are as untrusted as its input. */
export type AgentEvent =
  | { readonly kind: "step"; readonly step: number }
  /** A piece of the model's text, as it comes. */
  | { readonly kind: "text"; readonly piece: string }
  /** The answer broke off; its text is void, and the model is asked again. */
  | { readonly kind: "retry"; readonly reason: string; readonly waitMs: number }
  | { readonly kind: "call"; readonly id: string; readonly tool: string; readonly input: unknown }
  /** `code`: of the refusal; null if the call was not refused. */
  | { readonly kind: "called"; readonly id: string; readonly tool: string; readonly code: string | null };
