import { noTerminal } from "../../approval/approver.ts";
import { refusedError } from "../../operations/request-error.ts";
import { deniedLine } from "../../operations/wording/question-text.ts";
import { openCorralFor, openCorralLater } from "../../run/open/corral.ts";
import { openSession } from "../../run/open-session.ts";
import { usefulTools } from "../../run/session/offered-tools.ts";
import type { Session } from "../../run/session/session.ts";
import { stateDirFrom } from "../../state/state-dir.ts";
import { printable } from "../../text/visible.ts";
import { inputSchemaOf } from "../../tools/tool.ts";
import { TOOLS } from "../../tools/toolbox.ts";
import { type ElsewhereOptions, personAt, tellSuggestion, waitingBy } from "../consent/person.ts";
import { declaredWorker, type NamedWork } from "../declared/declared-worker.ts";
import { impliedOptionsIn } from "../declared/given-options.ts";
import { readInput } from "../run/attachments.ts";
import { UsageError } from "../terminal/arguments.ts";
import { EXIT, type Stop, say, stoppable, type Terminal } from "../terminal/terminal.ts";
import { ImageLines } from "../terminal/worker-text.ts";
import { printedAnswer, printTools } from "./remote-tool.ts";

export interface ToolOptions extends SessionOptions {
  readonly json?: boolean;
}

/** `corral tool`: one tool, once, under a worker's sandbox. Without a name it lists what there is. */
export async function toolVerb(
  name: string | undefined,
  input: string | undefined,
  options: ToolOptions,
  terminal: Terminal,
): Promise<number> {
  if (name === undefined) return await listTools(options, terminal);
  if (!TOOLS.has(name)) {
    const offered = (await offeredTo(options, terminal)).join(", ") || "none";
    throw new UsageError(`there is no tool ${JSON.stringify(name)}; there are: ${offered}`);
  }
  if (isNowhere(options))
    throw new UsageError(
      "use --worker NAME: the tool runs in the sandbox of this worker; or say with --ro and --rw what it gets",
    );
  const rawInput = (await readInput(input, terminal, "the input")) ?? {};
  return await inSession({ ...options, needsEngine: !FILE_TOOLS.has(name) }, terminal, async (session, stop) => {
    const result = await session.runTool(name, rawInput, stop.signal);
    return printedAnswer(name, result, options, terminal);
  });
}

/** All tools; with a worker, those that it may use, and their schemas in the text as well. */
async function listTools(options: ToolOptions, terminal: Terminal): Promise<number> {
  const { json } = options;
  const offered = await offeredTo(options, terminal);
  const known = [...TOOLS.values()].filter((tool) => offered.includes(tool.name));
  const tools = known.map((tool) => ({
    name: tool.name,
    description: tool.description,
    input: inputSchemaOf(tool),
  }));
  printTools(tools, { json, isOfWorker: !isNowhere(options) }, terminal);
  return 0;
}

async function offeredTo(options: ToolOptions, terminal: Terminal): Promise<readonly string[]> {
  return isNowhere(options) ? [...TOOLS.keys()] : usefulTools((await declaredWorker(options, terminal)).worker);
}

/** No sandbox is named in which a tool could be used. */
function isNowhere(options: ToolOptions): boolean {
  return options.worker === undefined && impliedOptionsIn(options).length === 0;
}

/** What needs no container. */
const FILE_TOOLS: ReadonlySet<string> = new Set(
  [...TOOLS.values()].filter(({ uses }) => uses === "files").map(({ name }) => name),
);

export type SessionOptions = Omit<NamedWork, "words"> & ElsewhereOptions;

/** Opens a session of a worker for one verb, and closes it after; for a refused one it prints why and sets the exit status. */
export async function inSession(
  { needsEngine = true, ...options }: SessionOptions & { readonly needsEngine?: boolean },
  terminal: Terminal,
  act: (session: Session, stop: Stop) => Promise<number>,
): Promise<number> {
  const declared = await declaredWorker(options, terminal);
  const { project, worker, isImplied } = declared;
  using stop = stoppable(terminal, (line) => say(terminal, line));
  const person = personAt(project, { terminal, stop });
  const images = new ImageLines();
  await using corral = await (needsEngine ? openCorralFor : openCorralLater)(project, {
    stateDir: stateDirFrom(terminal.env),
    engineEnv: terminal.env,
    emit(event) {
      for (const line of images.see(event)) say(terminal, line);
      if (event.type === "trouble") say(terminal, `corral: ${event.detail}`);
      else if (event.type === "network_denied") say(terminal, deniedLine(event.worker, event.denied));
    },
    ...(options.approve === undefined || options.apply ? {} : { approvalMode: options.approve }),
    person: person ?? noTerminal,
    ...waitingBy(options, (line) => say(terminal, line)),
  });
  const policy = declared.policy === null ? {} : { policy: declared.policy };
  const opened = await openSession({ worker, signal: stop.signal, ...policy }, corral.environment);
  if (!opened.ok) throw refusedError("WORKER_REFUSED", worker.name, opened.violations);
  try {
    const status = await act(opened.session, stop);
    const failure = (await opened.finish())?.failure ?? null;
    if (failure !== null) say(terminal, `corral: ${printable(failure.error.message)}`);
    if (!isImplied) await tellSuggestion(project, options.project, corral.environment.grants.told, terminal);
    return status === 0 && failure !== null ? EXIT.refused : status;
  } finally {
    await opened[Symbol.asyncDispose]();
  }
}
