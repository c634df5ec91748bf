import type { Duplex } from "node:stream";
import { Writable } from "node:stream";
import type Docker from "dockerode";
import { EngineTrouble } from "../driver.ts";
import { END_OF_REPORT, MAX_REPORT_BYTES } from "../gate/report.ts";
import { GO } from "../gate/script.ts";

/** The attached standard streams of a cell: first the gate's report, and after {@link Attachment.release} the worker's output. */
export interface Attachment {
  /** The whole report; rejects where the cell ends, or says too much, before its end. */
  readonly report: Promise<string>;
  release(input: Uint8Array): void;
  /** Settles when both streams are at their end, or the connection is gone. */
  readonly ended: Promise<void>;
  close(): void;
}

type OnOutput = (stream: "stdout" | "stderr", chunk: Buffer) => void;

/** Attaches before the start, so that not a byte is missed. */
export async function attach(docker: Docker, container: Docker.Container, onOutput: OnOutput): Promise<Attachment> {
  const stream = (await container.attach({
    stream: true,
    stdin: true,
    stdout: true,
    stderr: true,
    hijack: true,
  })) as Duplex;
  const ended = new Promise<void>((resolve) => {
    stream
      .once("end", resolve)
      .once("close", resolve)
      .once("error", () => resolve());
  });
  // A worker that ends without reading its input breaks the pipe; how it ended is the Engine's to say.
  stream.on("error", () => {});

  let released = false;
  const gate = new GateOutput();
  const sink = (name: "stdout" | "stderr"): Writable =>
    new Writable({
      write(chunk: Buffer, _encoding, done) {
        if (released) onOutput(name, chunk);
        else gate.add(name, chunk);
        done();
      },
    });
  docker.modem.demuxStream(stream, sink("stdout"), sink("stderr"));
  void ended.then(() => gate.end());

  return {
    report: gate.report,
    ended,
    release(input) {
      released = true;
      stream.write(GO);
      stream.end(input);
    },
    close: () => stream.destroy(),
  };
}

/** Collects what the gate prints. Its errors go with it, for the message of a failure. */
class GateOutput {
  readonly report: Promise<string>;
  readonly #settle: { resolve: (report: string) => void; reject: (error: Error) => void };
  #stdout = "";
  #stderr = "";

  constructor() {
    const { promise, resolve, reject } = Promise.withResolvers<string>();
    this.report = promise;
    this.#settle = { resolve, reject };
    // The report is awaited only after the start; a failure before that is told then.
    promise.catch(() => {});
  }

  add(stream: "stdout" | "stderr", chunk: Buffer): void {
    if (stream === "stdout") this.#stdout += chunk.toString("utf8");
    else this.#stderr += chunk.toString("utf8");
    if (this.#stdout.length + this.#stderr.length > MAX_REPORT_BYTES) {
      this.#settle.reject(new EngineTrouble("the cell said too much before its worker was let in"));
    } else if (this.#stdout.endsWith(END_OF_REPORT)) this.#settle.resolve(this.#stdout);
  }

  end(): void {
    this.#settle.reject(
      new EngineTrouble(`the cell ended before its worker was let in: ${this.#stderr.trim() || "no reason given"}`),
    );
  }
}
