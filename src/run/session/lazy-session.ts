import type { ToolResult } from "../../tools/run-tool.ts";
import type { Session } from "./session.ts";

/** A session that is opened with the first tool that a run uses: most use none. */
export class LazySession implements AsyncDisposable {
  readonly #parts: Parameters<typeof Session.open>;
  #isOver = false;
  #session: Promise<Session> | null = null;

  constructor(...parts: Parameters<typeof Session.open>) {
    this.#parts = parts;
  }

  async runTool(name: string, rawInput: unknown, hangUp: AbortSignal): Promise<ToolResult> {
    if (this.#isOver) throw new Error("a tool was asked for after the run had ended");
    // Loaded only now: the tools and what they need would double the start of every run.
    this.#session ??= import("./session.ts").then((loaded) => loaded.Session.open(...this.#parts));
    return await (await this.#session).runTool(name, rawInput, hangUp);
  }

  async [Symbol.asyncDispose](): Promise<void> {
    this.#isOver = true;
    // A session that could not be opened was told to the tool that wanted it.
    const session = await this.#session?.catch(() => null);
    await session?.[Symbol.asyncDispose]();
  }
}
