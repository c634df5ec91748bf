import type { AgentTool, AgentToolAnswer } from "../../agent/events.ts";
import type { ToolName } from "../../declarations/worker/tool-names.ts";
import type { WorkerDefinition } from "../../declarations/worker/worker.ts";
import { toolNameOf } from "../../declarations/worker/worker-yaml.ts";
import type { Sandbox } from "../../sandbox/sandbox.ts";
import { present } from "../../text/present.ts";
import type { CallToolRequest } from "../../tools/hands.ts";
import { inputSchemaOf, type Tool, type ToolResult } from "../../tools/tool.ts";
import { TOOLS } from "../../tools/toolbox.ts";
import type { OnOutput } from "../session/exec-command.ts";
import { usefulTools } from "../session/offered-tools.ts";

/** Whose tools they are: all that a model's call needs of a session. */
export interface ToolSession {
  readonly sandbox?: Sandbox;
  runTool(name: string, rawInput: unknown, signal: AbortSignal, onOutput?: OnOutput): Promise<ToolResult>;
  callWorker(request: CallToolRequest, signal: AbortSignal): Promise<ToolResult>;
}

/** What an agent's model can call: the tools that its file names, and each worker that it may call as a tool of its own. */
export function agentTools(
  worker: WorkerDefinition,
  workers: ReadonlyMap<string, WorkerDefinition>,
  session: ToolSession,
): AgentTool[] {
  const tools = usefulTools(worker, session.sandbox).flatMap((name) => sandboxTool(name, session) ?? []);
  const callees = worker.calls.flatMap((name) => workers.get(name) ?? []);
  return [...tools, ...callees.map((callee) => workerTool(callee, session))];
}

function sandboxTool(name: ToolName, session: ToolSession): AgentTool | null {
  const tool: Tool | undefined = TOOLS.get(name);
  if (tool === undefined) return null;
  return {
    name,
    description: tool.description,
    inputSchema: inputSchemaOf(tool),
    parallel: tool.effects.readOnly,
    hasOutput: name === "exec",
    run: async (input, signal, onOutput) => answerOf(await session.runTool(name, input, signal, onOutput)),
  };
}

/** The worker's input schema is below `input`, since the call itself also has attachments. */
function workerTool({ name, description, inputSchema = {} }: WorkerDefinition, session: ToolSession): AgentTool {
  const { $defs, definitions, ...own } = inputSchema;
  const does = description === "" ? "" : ` ${description}`;
  return {
    name: toolNameOf(name),
    description: `Calls the worker ${name} and waits for its answer.${does}\nIt runs in a container of its own and gets at most what you have.`,
    inputSchema: {
      type: "object",
      properties: {
        input: { description: "What it is given; any JSON.", ...own },
        attachments: {
          type: "array",
          items: { type: "string" },
          description: "Paths of files that it may read, each as /attachments/NAME.",
        },
      },
      required: "type" in inputSchema ? ["input"] : [],
      additionalProperties: false,
      // What its parts point to is looked for from the top of the whole schema.
      ...present({ $defs, definitions }),
    },
    parallel: true,
    async run(raw, signal) {
      const call = typeof raw === "object" && raw !== null ? raw : {};
      return called(await session.callWorker({ attachments: [], ...call, worker: name }, signal));
    },
  };
}

const MAX_SHOWN_CHARACTERS = 4000;

/** Of a worker that failed, also the end of what it printed for people: it says why. */
function called(result: ToolResult): AgentToolAnswer {
  const answer = answerOf(result);
  const { stderr } = result.data;
  if (answer.ok || typeof stderr !== "string" || stderr === "") return answer;
  const shown = stderr.slice(-MAX_SHOWN_CHARACTERS).toWellFormed();
  return { ...answer, text: `${answer.text}\n[Its standard error, at the end]\n${shown}` };
}

function answerOf(result: ToolResult): AgentToolAnswer {
  if (!result.ok) return { ok: false, code: result.code, text: result.message };
  return { ok: true, code: null, text: result.text, ...present({ image: result.image }) };
}
