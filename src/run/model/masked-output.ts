import type { Exec, ExecRequest, SessionCell } from "../../isolation/port/cell.ts";
import { MaskedBytes, type Masking } from "../../secrets/read-secret.ts";

type StreamName = "stdout" | "stderr";

/** Both streams of a program in a cell, without the secrets of its tree. */
export class MaskedOutput<Taken> {
  readonly #streams: readonly (readonly [StreamName, MaskedBytes])[];
  readonly #onOutput: (stream: StreamName, chunk: Buffer) => Taken;

  constructor(masking: Masking, root: string, onOutput: (stream: StreamName, chunk: Buffer) => Taken) {
    this.#onOutput = onOutput;
    this.#streams = (["stdout", "stderr"] as const).map((name) => [name, new MaskedBytes(() => masking.of(root))]);
  }

  add(stream: StreamName, chunk: Buffer): Taken | undefined {
    const bytes = this.#streams.find(([name]) => name === stream)?.[1].add(chunk);
    return bytes === undefined || bytes.length === 0 ? undefined : this.#onOutput(stream, bytes);
  }

  /** Passes on the ends that were held back. */
  end(): readonly (Taken | undefined)[] {
    return this.#streams.map(([name, bytes]) => {
      const rest = bytes.end();
      return rest.length === 0 ? undefined : this.#onOutput(name, rest);
    });
  }
}

/**
 * The same cell, whose commands' output has no secret of the tree. `masked` is `stderr` for contents, which who takes them searches: a masked file has
 * another size than was said, and what is held back of a connection may be all that its client waits for.
 */
export function maskedSession(
  cell: SessionCell,
  masking: Masking,
  root: string,
  masked: "both" | "stderr" = "both",
): SessionCell {
  return {
    ...cell,
    [Symbol.asyncDispose]: () => cell[Symbol.asyncDispose](),
    async exec(request: ExecRequest): Promise<Exec> {
      const output = new MaskedOutput(masking, root, request.onOutput);
      const isContent = (stream: StreamName): boolean => masked === "stderr" && stream === "stdout";
      const onOutput: ExecRequest["onOutput"] = (stream, chunk) =>
        isContent(stream) ? request.onOutput(stream, chunk) : output.add(stream, chunk);
      // Who takes all of a pipe masks nothing.
      const { takesOutput, ...read } = request;
      const taken = masked === "both" || takesOutput === undefined ? {} : { takesOutput };
      const exec = await cell.exec({ ...read, ...taken, onOutput });
      const exit = exec.exit.then(async (ended) => {
        await Promise.all(output.end());
        return ended;
      });
      return { ...exec, exit };
    },
  };
}
