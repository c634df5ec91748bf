import type { Cell, ServingCell } from "../port/cell.ts";
import { EngineTrouble, type Start, type StartRequest } from "../port/driver.ts";
import type { StartedCell } from "./command-cell.ts";

/** An answer is one short line; the cell's first process writes nothing longer. */
const MAX_ANSWER_BYTES = 4096;

/** The answers of a serving cell's first process, which alone can write to the attached output. */
class ServingReplies {
  #text = "";
  #waiting: PromiseWithResolvers<string> | null = null;
  #failure: Error | null = null;

  add(stream: "stdout" | "stderr", chunk: Buffer): void {
    // The shell's own warnings, which say nothing about an item.
    if (stream === "stderr") return;
    this.#text += chunk.toString("latin1");
    if (this.#text.length > MAX_ANSWER_BYTES)
      this.#fail(new EngineTrouble("a serving cell sent an answer that is too long"));
    this.#settle();
  }

  /** The next line. Rejects if there was an answer without a question. */
  next(): Promise<string> {
    if (this.#failure !== null) return Promise.reject(this.#failure);
    if (this.#text !== "") return Promise.reject(new EngineTrouble("a serving cell answered without being asked"));
    this.#waiting = Promise.withResolvers<string>();
    return this.#waiting.promise;
  }

  #settle(): void {
    const end = this.#text.indexOf("\n");
    if (end < 0 || this.#waiting === null) return;
    const line = this.#text.slice(0, end);
    this.#text = this.#text.slice(end + 1);
    this.#waiting.resolve(line);
    this.#waiting = null;
  }

  #fail(error: Error): void {
    this.#failure = error;
    this.#waiting?.reject(error);
    this.#waiting = null;
  }
}

/** Starts a cell that serves items, as `start` starts and verifies one. It is released at once, and waits for the first item. */
export async function startServingCell<Parts>(
  request: Omit<StartRequest, "onOutput">,
  start: (request: StartRequest) => Promise<StartedCell<Parts>>,
  write: (parts: Parts, text: string) => void,
): Promise<Start<ServingCell>> {
  const answers = new ServingReplies();
  const started = await start({ ...request, onOutput: answers.add.bind(answers) });
  if (!started.ok) return started;
  const cell = asServingCell(started.cell, (text) => write(started, text), answers);
  cell.release(new Uint8Array());
  return { ok: true, cell };
}

/** A cell whose output goes to `answers`, and whose input `write` adds to. */
function asServingCell(cell: Cell, write: (text: string) => void, answers: ServingReplies): ServingCell {
  let killed = 0;
  return {
    ...cell,
    [Symbol.asyncDispose]: () => cell[Symbol.asyncDispose](),
    async serve(id) {
      const answer = answers.next();
      write(`run ${id}\n`);
      const line = await Promise.race([answer, cell.exit.then(() => null)]);
      if (line === null) return { kind: "gone" };
      const served = parseAnswer(line, id);
      const { code, what } = served;
      const outOfMemory = served.killed > killed;
      killed = served.killed;
      if (what === null) return { kind: "ended", code, outOfMemory };
      // Until the cell has ended, a process may still use the files of the item.
      const exit = await cell.exit;
      return exit.kind === "exited" ? { kind: "dirty", code, outOfMemory, what } : { kind: "gone" };
    },
  };
}

interface ItemAnswer {
  readonly code: number;
  readonly killed: number;
  /** What could not be cleaned; null if the cell is clean. */
  readonly what: string | null;
}

function parseAnswer(line: string, id: string): ItemAnswer {
  const [, of, code, killed, what] =
    /^(?:ended|dirty(?=.* [a-z]+$)) (\S+) (\d{1,3}) (\d+)(?: ([a-z]+))?$/.exec(line) ?? [];
  if (of !== id) throw new EngineTrouble("a serving cell answered for another item than the one it was given");
  return { code: Number(code), killed: Number(killed), what: what ?? null };
}
