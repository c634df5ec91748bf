import type { ToolResult } from "../../tools/run-tool.ts";
import type { Session } from "./session.ts";

/** A session that is opened with the first tool that a run uses: most use none. Ends with the run, whatever is in it. */
export class LazySession implements AsyncDisposable {
  readonly #parts: Parameters<typeof Session.open>;
  readonly #over = new AbortController();
  readonly #running = new Set<Promise<ToolResult>>();
  #session: Promise<Session> | null = null;

  constructor(...parts: Parameters<typeof Session.open>) {
    this.#parts = parts;
  }

  async runTool(name: string, rawInput: unknown, hangUp: AbortSignal): Promise<ToolResult> {
    this.#over.signal.throwIfAborted();
    // Loaded only now: the tools and what they need would double the start of every run.
    this.#session ??= import("./session.ts").then((loaded) => loaded.Session.open(...this.#parts));
    const session = await this.#session;
    const result = session.runTool(name, rawInput, AbortSignal.any([hangUp, this.#over.signal]));
    this.#running.add(result);
    return await result.finally(() => this.#running.delete(result));
  }

  async [Symbol.asyncDispose](): Promise<void> {
    this.#over.abort(new Error("the run has ended"));
    await Promise.allSettled(this.#running);
    // A session that could not be opened was told to the tool that wanted it.
    const session = await this.#session?.catch(() => null);
    await session?.[Symbol.asyncDispose]();
  }
}
