import type { ToolResult } from "../../tools/tool.ts";

interface OpenedSession extends AsyncDisposable {
  runTool(name: string, rawInput: unknown, signal: AbortSignal): Promise<ToolResult>;
}

/** A session that is opened with the first tool that a run uses: most runs use none. */
export class LazySession implements AsyncDisposable {
  readonly #open: () => Promise<OpenedSession>;
  #isOver = false;
  #session: Promise<OpenedSession> | null = null;

  constructor(open: () => Promise<OpenedSession>) {
    this.#open = open;
  }

  async runTool(name: string, rawInput: unknown, signal: AbortSignal): Promise<ToolResult> {
    if (this.#isOver) throw new Error("a tool was asked for after the run had ended");
    this.#session ??= this.#open();
    return await (await this.#session).runTool(name, rawInput, signal);
  }

  async [Symbol.asyncDispose](): Promise<void> {
    this.#isOver = true;
    // The error of a session that could not be opened went to the tool that wanted it.
    const session = await this.#session?.catch(() => null);
    await session?.[Symbol.asyncDispose]();
  }
}
