/** Something that a model may call: a tool under its run's sandbox, or a worker that it may call. */
export interface AgentTool {
  /** Letters, digits, `_` and `-`: what every provider takes. */
  readonly name: string;
  readonly description: string;
  /** JSON Schema of its input. */
  readonly inputSchema: Readonly<Record<string, unknown>>;
  /** True where calls of one answer may run beside each other: none of them changes what another one sees. */
  readonly parallel: boolean;
  /** A refusal is an answer. Rejects for bugs, trouble with the engine, and with the reason of `signal`. */
  run(input: unknown, signal: AbortSignal): Promise<AgentToolAnswer>;
}

export interface AgentToolAnswer {
  readonly ok: boolean;
  /** Null where it is no refusal. */
  readonly code: string | null;
  readonly text: string;
  readonly image?: AgentImage;
}

export interface AgentImage {
  readonly mimeType: string;
  readonly base64: string;
}
