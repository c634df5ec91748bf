import type { AnswerOf } from "../../operations/contract/table.ts";
import type { RunStatus } from "../../run/model/result.ts";
import { present } from "../../text/present.ts";
import { printable } from "../../text/visible.ts";
import type { ToolResult } from "../../tools/tool.ts";
import { toldQuestions } from "../host/at-service.ts";
import { readInput } from "../run/attachments.ts";
import { UsageError } from "../terminal/arguments.ts";
import { type AtService, EXIT, exitStatusOf, printJson, say, stoppable, type Terminal } from "../terminal/terminal.ts";
import { workerTextTo } from "../terminal/worker-text.ts";

/** `corral tool` at a service: in a session of its own, which ends with the answer. Without a name it lists what the worker may use. */
export async function toolAt(
  { client, project }: AtService,
  name: string | undefined,
  rawInput: string | undefined,
  { worker, policy, json }: { readonly worker?: string; readonly policy?: string; readonly json?: boolean },
  terminal: Terminal,
): Promise<number> {
  if (worker === undefined)
    throw new UsageError("use --worker NAME: at the service, the tool runs in the sandbox of this worker");
  const input = name === undefined ? {} : ((await readInput(rawInput, terminal, "the input")) ?? {});
  using stop = stoppable(terminal, (line) => say(terminal, line));
  const { id: session } = await client.call("sessions.open", { worker, ...present({ policy, project }) });
  let isClosed = false;
  try {
    if (name === undefined) {
      const { tools } = await client.call("sessions.tools", { session });
      printTools(
        tools.map(({ name, description, inputSchema }) => ({ name, description, input: inputSchema })),
        { json, isOfWorker: true },
        terminal,
      );
      return 0;
    }
    using _ = toldQuestions(client, session, terminal);
    const ask = { session, tool: name, input: input as Record<string, unknown> };
    const result = await client.call("sessions.use", ask, { signal: stop.signal });
    isClosed = true;
    const { changeset, error } = await client.call("sessions.close", { session });
    const status = printedAnswer(name, result as ToolResult, { json }, terminal);
    if (changeset?.id) say(terminal, `corral: changes wait: \`corral changes apply ${changeset.id}\``);
    if (error !== null) say(terminal, `corral: ${printable(error.message)}`);
    return status === 0 && error !== null ? EXIT.refused : status;
  } catch (error) {
    if (stop.signal.aborted) return EXIT.cancelled;
    throw error;
  } finally {
    if (!isClosed) await client.call("sessions.close", { session, discard: true }).catch(() => {});
  }
}

/** Prints the answer of a tool, and returns the exit status: a command's own status counts as the tool's. */
export function printedAnswer(
  name: string,
  result: ToolResult,
  { json }: { readonly json?: boolean | undefined },
  terminal: Terminal,
): number {
  if (json) printJson(terminal, result);
  else if (result.ok) {
    const text = workerTextTo(terminal.stdout);
    terminal.stdout.write(text.piece(result.text.endsWith("\n") ? result.text : `${result.text}\n`));
    terminal.stdout.write(text.end());
  } else say(terminal, `corral: ${printable(result.message)}`);
  if (!result.ok) return { BAD_INPUT: EXIT.wrongUsage, CANCELLED: EXIT.cancelled }[result.code] ?? EXIT.refused;
  if (name !== "exec") return 0;
  return exitStatusOf(result.data as { status: RunStatus; exitCode: number | null; signal: string | null });
}

type ShownTool = Pick<AnswerOf<"sessions.tools">["tools"][number], "name" | "description"> & {
  readonly input: unknown;
};

/** `isOfWorker`: with the schemas of their inputs in the text as well. */
export function printTools(
  tools: readonly ShownTool[],
  { json, isOfWorker }: { readonly json?: boolean | undefined; readonly isOfWorker: boolean },
  terminal: Terminal,
): void {
  if (json) printJson(terminal, tools);
  else if (tools.length === 0) terminal.stdout.write("This worker may use no tools.\n");
  else
    for (const { name, description, input } of tools)
      terminal.stdout.write(
        `${printable(name)}\n  ${printable(description)}\n${isOfWorker ? `  ${JSON.stringify(input)}\n` : ""}`,
      );
}
