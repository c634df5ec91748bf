import { randomBytes } from "node:crypto";
import { nobodyAsks, QuestionRoutes } from "../../mcp/connection/client-approver.ts";
import { McpConnection } from "../../mcp/connection/connection.ts";
import { serveOnStdio } from "../../mcp/protocol-server.ts";
import { deniedLine } from "../../operations/wording/question-text.ts";
import { workerSandbox } from "../../operations/workers.ts";
import { openCorralLater } from "../../run/open/corral.ts";
import { stateDirFrom } from "../../state/state-dir.ts";
import { present } from "../../text/present.ts";
import { personAt, tellSuggestion, waitingBy } from "../consent/person.ts";
import { declaredWorker } from "../declared/declared-worker.ts";
import { impliedOptionsIn } from "../declared/given-options.ts";
import { UsageError } from "../terminal/arguments.ts";
import { failureOf } from "../terminal/failure.ts";
import { EXIT, say, stoppable, type Terminal } from "../terminal/terminal.ts";
import { ImageLines } from "../terminal/worker-text.ts";
import type { SessionOptions } from "./tool.ts";

export interface McpOptions extends SessionOptions {
  /** The port, or true for any. */
  readonly http?: string | true;
  /** False: the client's roots are not asked for. */
  readonly roots: boolean;
}

/** `corral mcp`: a worker's tools, files and container for any MCP client. */
export async function mcpVerb(options: McpOptions, terminal: Terminal): Promise<number> {
  if (options.worker === undefined && impliedOptionsIn(options).length === 0)
    throw new UsageError(
      "use --worker NAME: the client gets the sandbox of this worker; or say with --ro and --rw what it gets",
    );
  const port = options.http === undefined ? null : portOf(options.http);
  if (port !== null) refuseWeakToken(terminal.env.CORRAL_MCP_TOKEN);
  const tell = (line: string): void => say(terminal, `corral: ${line}`);
  const declared = await declaredWorker(options, terminal);
  const { project, worker, isImplied } = declared;
  using stop = stoppable(terminal, (line) => say(terminal, line));
  // On stdio, standard input belongs to the protocol.
  const person = port === null ? null : personAt(project, { terminal, stop });
  const otherwise = person ?? nobodyAsks;
  const routes = new QuestionRoutes(otherwise);
  const images = new ImageLines();
  await using corral = await openCorralLater(project, {
    stateDir: stateDirFrom(terminal.env),
    engineEnv: terminal.env,
    emit(event) {
      for (const line of images.see(event)) say(terminal, line);
      if (event.type === "trouble") tell(event.detail);
      else if (event.type === "network_denied") say(terminal, deniedLine(event.worker, event.denied));
    },
    ...(options.approve === undefined || options.apply ? {} : { approvalMode: options.approve }),
    approver: routes,
    ...waitingBy(options, (line) => say(terminal, line)),
  });
  const policy = declared.policy ?? undefined;
  // Checked before a client connects, which would only see that its server does nothing.
  await workerSandbox(worker, declared.policy, corral.environment);
  const connect = (isShared: boolean): McpConnection =>
    new McpConnection({
      worker,
      workers: project.workers,
      ...present({ policy }),
      environment: corral.environment,
      routes,
      otherwise,
      isShared,
      honoursRoots: options.roots,
      approvalTimeoutMs: project.approval.timeoutMs,
      tell,
      report: (error) => say(terminal, failureOf(error, terminal.env).text),
    });
  const onTrouble = (error: Error): void => void (terminal.env.CORRAL_DEBUG && tell(error.message));
  if (port === null) {
    await using connection = connect(false);
    const { stdin, stdout } = terminal;
    await serveOnStdio({ stdin, stdout, connection, signal: stop.signal, onTrouble });
  } else {
    const { serveOnHttp } = await import("../../mcp/http/server.ts");
    const chosen = terminal.env.CORRAL_MCP_TOKEN || null;
    const token = chosen ?? randomBytes(32).toString("base64url");
    await using server = await serveOnHttp({ port, token, connect, onTrouble }).catch(
      (error: NodeJS.ErrnoException) => {
        if (error.syscall !== "listen") throw error;
        throw new UsageError(`--http ${port}: this port is not available (${error.message})`, { cause: error });
      },
    );
    tell(`serving ${worker.name} at ${server.url}`);
    if (chosen === null) tell(`Authorization: Bearer ${token}`);
    await new Promise<void>((resolve) => {
      if (stop.signal.aborted) resolve();
      stop.signal.addEventListener("abort", () => resolve(), { once: true });
    });
  }
  if (!isImplied) await tellSuggestion(project, options.project, corral.environment.grants.told, terminal);
  return stop.signal.aborted ? EXIT.cancelled : 0;
}

function portOf(said: string | true): number {
  if (said === true) return 0;
  const port = /^\d{1,5}$/.test(said) ? Number(said) : Number.NaN;
  if (!(port <= 65_535)) throw new UsageError(`--http takes a port from 0 to 65535, not ${JSON.stringify(said)}`);
  return port;
}

/** A client with the token has the sandbox, and any program of this machine can try tokens. Empty: as if it were not set. */
function refuseWeakToken(token = ""): void {
  if (token === "" || /^[\x21-\x7e]{32,1024}$/.test(token)) return;
  throw new UsageError(
    "CORRAL_MCP_TOKEN must have 32 to 1024 ASCII characters without spaces; if it is not set, Corral makes a token",
  );
}
