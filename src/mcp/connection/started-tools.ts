import type { CallToolResult, Tool as ToolDescription } from "@modelcontextprotocol/server";
import { z } from "zod";
import type { WorkerDefinition } from "../../declarations/worker/worker.ts";
import { charactersIn } from "../../json/parse-json.ts";
import { aborted } from "../../platform/within.ts";
import { describedFor, usefulTools } from "../../run/session/offered-tools.ts";
import type { Session } from "../../run/session/session.ts";
import type { StartedCommand } from "../../run/session/started-commands.ts";
import { inputSchemaOf, type Tool, ToolRefusal, type ToolResult } from "../../tools/tool.ts";
import { TOOLS } from "../../tools/toolbox.ts";

/** A tool of a client's session alone: a command that continues when its call has ended has no use where nobody could ask for it again. */
interface StartedTool extends OfferedTool {
  run(session: Session, input: unknown, signal: AbortSignal): Promise<ToolResult>;
}

const MAX_READ_BYTES = 64 * 1024;
const MAX_WAIT_MS = 60_000;
const SIGNALS = ["SIGHUP", "SIGINT", "SIGTERM", "SIGKILL"] as const;

const id = z
  .string()
  .regex(/^[0-9a-f]{12}$/)
  .describe("The command's id, as returned by `exec_start`.");
const effects = { readOnly: false, destructive: true, idempotent: false, openWorld: true };

const execStart = startedTool({
  name: "exec_start",
  title: "Start a command in the background",
  description:
    "Starts a command as `exec` does, under the same rules, and answers at once with its id: for servers, watchers and what takes long. It runs until " +
    "it ends, `exec_signal` or its time limit ends it, or the connection is over. The last MiB of its output is kept for `exec_output`.",
  input: z.strictObject({
    command: z.string().min(1).max(100_000).describe("The command line; `sh` runs it."),
    cwd: z.string().min(1).max(4096).optional().describe("The directory to run in. Default: the working directory."),
    env: z.record(z.string().max(128), z.string().max(32_768)).optional().describe("Additional environment variables."),
    timeout_ms: z.int().min(1).max(86_400_000).optional().describe("Time limit in milliseconds. Default: none."),
  }),
  effects,
  async use({ command, cwd, env, timeout_ms: timeoutMs }, session, signal) {
    const request = { command, cwd, env, timeoutMs, hasInput: false, isBackground: true };
    const started = await session.start(request, false, signal);
    return { ok: true, text: `Started as ${started.id}.`, data: stateOf(started) };
  },
});

const execOutput = startedTool({
  name: "exec_output",
  title: "Read what a started command prints",
  description:
    "Returns what a command of `exec_start` printed since `from`, standard output and error in their order, and its state. `next` of the answer is `from` " +
    `of the next call. An answer has at most ${MAX_READ_BYTES / 1024} KiB.`,
  input: z.strictObject({
    id,
    from: z
      .int()
      .min(0)
      .optional()
      .describe("Where to continue: `next` of the last answer. Default: 0, the beginning."),
    wait_ms: z.int().min(0).max(MAX_WAIT_MS).optional().describe("Waits at most so long. Default: not at all."),
    until: z
      .enum(["output", "end"])
      .optional()
      .describe("What it waits for: that something new was printed (the default), or that the command has ended."),
  }),
  effects: { readOnly: true, destructive: false, idempotent: true, openWorld: false },
  async use({ id, from = 0, wait_ms: waitMs = 0, until = "output" }, session, signal) {
    const command = session.started.find(id);
    const late = AbortSignal.any([signal, AbortSignal.timeout(waitMs)]);
    if (waitMs > 0 && until === "end") await Promise.race([command.ended, aborted(late)]);
    if (waitMs > 0 && until === "output")
      for await (const _ of command.output.read(from, { follow: true, idleMs: waitMs, signal: late })) break;
    signal.throwIfAborted();
    const { bytes, next, missingBytes } = await readFrom(command, from, signal);
    const state = stateOf(command);
    const missing = missingBytes === 0 ? "" : `[${missingBytes} bytes before it are kept no more]\n`;
    const text = `${missing}${bytes.toString()}\n[${state.status}${state.exitCode === null ? "" : `: exit code ${state.exitCode}`}; next: ${next}]`;
    return { ok: true, text, data: { ...state, next, missingBytes } };
  },
});

const execSignal = startedTool({
  name: "exec_signal",
  title: "Signal a started command",
  description: "Sends a signal to a command of `exec_start` and to all that it started, and to nothing else.",
  input: z.strictObject({ id, signal: z.enum(SIGNALS).optional().describe("Default: SIGTERM.") }),
  effects: { ...effects, openWorld: false },
  async use({ id, signal: name = "SIGTERM" }, session) {
    const command = session.started.find(id);
    if (command.ending !== null) throw new ToolRefusal("ENDED", `The command has ended: ${command.ending.status}.`);
    if (!(await command.signal(name)))
      throw new ToolRefusal("NOT_SIGNALLED", "Some of what the command started may not have it.");
    return { ok: true, text: `Sent ${name}.`, data: stateOf(command) };
  },
});

/** By name. A worker that may use `exec` has them. */
export const STARTED_TOOLS: ReadonlyMap<string, StartedTool> = new Map(
  [execStart, execOutput, execSignal].map((tool) => [tool.name, tool]),
);

function startedTool<Schema extends z.ZodType>({
  use,
  ...shown
}: Omit<StartedTool, "run" | "uses" | "input"> & {
  readonly input: Schema;
  use(input: z.output<Schema>, session: Session, signal: AbortSignal): Promise<ToolResult>;
}): StartedTool {
  return {
    ...shown,
    uses: "exec",
    async run(session, input, signal) {
      const parsed = shown.input.safeParse(input);
      if (!parsed.success)
        return refusedAnswer("BAD_INPUT", `The input of ${shown.name} is not valid:\n${z.prettifyError(parsed.error)}`);
      try {
        return await use(parsed.data, session, signal);
      } catch (error) {
        if (!(error instanceof ToolRefusal)) throw error;
        return refusedAnswer(error.code, error.message, error.data);
      }
    },
  };
}

function stateOf({ id, ending }: StartedCommand) {
  const { status = "running", exitCode = null, signal = null } = ending ?? {};
  return { id, status, exitCode, signal };
}

/** What is there, up to a limit, and no part of a character. */
async function readFrom(command: StartedCommand, from: number, signal: AbortSignal) {
  const pieces: Buffer[] = [];
  let [next, missingBytes, room] = [Math.min(from, command.output.end), 0, MAX_READ_BYTES];
  for await (const piece of command.output.read(next, { follow: false, idleMs: MAX_WAIT_MS, signal })) {
    if (piece === null) continue;
    const taken = piece.bytes.subarray(0, room);
    pieces.push(taken);
    missingBytes += piece.missingBytes;
    room -= taken.length;
    next = piece.end - (piece.bytes.length - taken.length);
    if (room === 0) break;
  }
  const bytes = Buffer.concat(pieces);
  const whole = command.ending !== null && next === command.output.end ? bytes.length : wholeLength(bytes);
  return { bytes: bytes.subarray(0, whole), next: next - (bytes.length - whole), missingBytes };
}

/** Without the beginning of a character of UTF-8 whose rest is not there yet. */
function wholeLength(bytes: Buffer): number {
  for (let back = 1; back <= Math.min(3, bytes.length); back += 1) {
    const byte = bytes[bytes.length - back] ?? 0;
    if ((byte & 0xc0) === 0x80) continue;
    const needed = byte >= 0xf0 ? 4 : byte >= 0xe0 ? 3 : byte >= 0xc0 ? 2 : 1;
    return needed > back ? bytes.length - back : bytes.length;
  }
  return bytes.length;
}

/** The SDK's client ends its stdio connection at a message of 10 MiB. */
const MAX_ANSWER_BYTES = 8 * 1024 ** 2;
/** What is kept of a longer answer: of its text, and of each field that is useful by itself. */
const MAX_TEXT_CHARACTERS = 200_000;
const MAX_FIELD_CHARACTERS = 1000;

/** A tool's answer in the protocol's form. A refusal is an answer that a model can act on, not a protocol error. */
export function toolAnswer(result: ToolResult, notes: readonly string[] = []): CallToolResult {
  const whole = wrapped(result, notes);
  return isTooLong(whole) ? wrapped(shortened(result), notes) : whole;
}

/** A refusal of the server's own. */
export function refusedAnswer(code: string, message: string, data: Readonly<Record<string, unknown>> = {}): ToolResult {
  return { ok: false, code, message, data };
}

/** True if the message is longer than clients accept: a worker's output may be many times longer. */
export function isTooLong(answer: unknown): boolean {
  const characters = charactersIn(answer);
  if (characters > MAX_ANSWER_BYTES) return true;
  // In JSON, no character and no number takes more bytes.
  return characters * 32 > MAX_ANSWER_BYTES && Buffer.byteLength(JSON.stringify(answer)) > MAX_ANSWER_BYTES;
}

function wrapped(result: ToolResult, notes: readonly string[]): CallToolResult {
  const said = result.ok ? result.text : result.message;
  const text = [said, ...notes.map((note) => `[Note: ${note}]`)].join("\n");
  const content: CallToolResult["content"] = [{ type: "text", text }];
  if (!result.ok) return { content, structuredContent: { ...result.data, code: result.code }, isError: true };
  const { image, data } = result;
  if (image !== undefined) content.push({ type: "image", data: image.base64, mimeType: image.mimeType });
  return { content, structuredContent: { ...data } };
}

function shortened(result: ToolResult): ToolResult {
  const brief = Object.entries(result.data).filter(([, value]) => isBrief(value));
  const data = { ...Object.fromEntries(brief), cut: true };
  if (!result.ok) return { ...result, message: beginningOf(result.message), data };
  const image = result.image === undefined ? "" : "\n[The image is too large to send.]";
  return { ok: true, text: beginningOf(result.text) + image, data };
}

function isBrief(value: unknown): boolean {
  return typeof value === "string" ? value.length <= MAX_FIELD_CHARACTERS : typeof value !== "object";
}

function beginningOf(text: string): string {
  const left = text.length - MAX_TEXT_CHARACTERS;
  if (left <= 0) return text;
  return `${text.slice(0, MAX_TEXT_CHARACTERS).toWellFormed()}\n[${left} more characters are not shown.]`;
}

/** What a client is told of a tool. */
export type OfferedTool = Pick<Tool, "title" | "description" | "input" | "uses" | "effects"> & {
  readonly name: string;
};

/** The tools that a worker may and can use, by name: all others would be refused. */
export function offeredTools(worker: WorkerDefinition): Map<string, OfferedTool> {
  return new Map(usefulTools(worker).flatMap((name) => entryOf(name)));
}

function entryOf(name: string): [string, OfferedTool][] {
  const tool = TOOLS.get(name);
  return tool === undefined ? [] : [[name, tool]];
}

/** A tool in the protocol's form. `workers`: those of the project; they describe the callable ones. */
export function toolDescription(
  tool: OfferedTool,
  worker: Pick<WorkerDefinition, "calls">,
  workers: ReadonlyMap<string, Pick<WorkerDefinition, "description">>,
): ToolDescription {
  const { name, title, effects } = tool;
  return {
    name,
    title,
    description: describedFor(tool, worker, workers),
    inputSchema: inputSchemaOf(tool) as ToolDescription["inputSchema"],
    annotations: {
      title,
      readOnlyHint: effects.readOnly,
      destructiveHint: effects.destructive,
      idempotentHint: effects.idempotent,
      openWorldHint: effects.openWorld,
    },
  };
}
