/** One connection that a client in a cell tries (client.py). Texts that are sent are Latin-1: each character is one byte. */
export interface Attempt {
  readonly host: string;
  readonly port: number;
  readonly steps: readonly Step[];
  /** After this time the client stops waiting. */
  readonly seconds?: number;
}

export type Step =
  | readonly ["send", string | Buffer]
  /** Sends it this many times. */
  | readonly ["fill", string, number]
  | readonly ["pause", number]
  | readonly ["tls", TlsStep]
  /** Reads until this text has come. */
  | readonly ["until", string]
  /** Ends its side, and goes on reading. */
  | readonly ["end"]
  /** Closes with RST. */
  | readonly ["reset"];

export interface TlsStep {
  /** Absent: no server name is sent. */
  readonly sni?: string;
  readonly alpn?: readonly string[];
  readonly max?: "1.2";
  /** The hello is cut into records of this many bytes. */
  readonly record?: number;
  /** The first flight is sent in pieces of this many bytes. */
  readonly segment?: number;
}

/** What the client saw. */
export interface Outcome {
  /** `eof`, `open` if nothing closed it in time, `unknown name`, an errno such as `ECONNREFUSED`, or `tls: …`. */
  readonly end: string;
  /** At most 6000 characters. */
  readonly got: string;
  readonly bytes: number;
  readonly ms: number;
}

/** As client.py reads them. */
export function attemptsJson(attempts: Readonly<Record<string, Attempt>>): readonly unknown[] {
  return Object.entries(attempts).map(([id, { steps, ...attempt }]) => ({
    ...attempt,
    id,
    steps: steps.map(stepJson),
  }));
}

export function outcomesOf(stdout: string): ReadonlyMap<string, Outcome> {
  const lines = stdout.split("\n").filter((line) => line !== "");
  const outcomes = lines.map((line) => JSON.parse(line) as Outcome & { readonly id: string });
  return new Map(outcomes.map(({ id, ...outcome }) => [id, outcome]));
}

function stepJson(step: Step): readonly unknown[] {
  if (step[0] === "send") return [step[0], base64(step[1])];
  if (step[0] === "fill") return [step[0], [base64(step[1]), step[2]]];
  return [step[0], step[1] ?? null];
}

function base64(bytes: string | Buffer): string {
  return Buffer.from(bytes as string, "latin1").toString("base64");
}
