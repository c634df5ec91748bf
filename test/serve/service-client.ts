import { type ChildProcess, spawn } from "node:child_process";
import { once } from "node:events";
import { request as httpRequest, type IncomingMessage } from "node:http";
import { text } from "node:stream/consumers";
import { Tokens } from "../../src/state/service/tokens.ts";
import type { CliProject } from "../cli/cli-project.ts";
import { PROGRAM } from "../cli/program.ts";
import { Description, isEvent, type Reply } from "./description.ts";

export interface Ask {
  /** Null: none. Absent: that of an admin. */
  readonly token?: string | null;
  /** Sent as JSON. */
  readonly body?: unknown;
  readonly raw?: string | Buffer;
  readonly headers?: Readonly<Record<string, string | readonly string[]>>;
}

/** A real `corral serve` in a process of its own, on a port or a socket. Each answer is compared with its description. */
export interface TestService extends AsyncDisposable {
  readonly child: ChildProcess;
  readonly port: number;
  readonly token: string;
  readonly socket: string | null;
  /** Routes that were answered, as `GET /v1/runs`. */
  readonly seen: ReadonlySet<string>;
  /** What the service wrote to its log until now. */
  log(): string;
  /** What it wrote to its standard output until now. */
  printed(): string;
  ask(method: string, path: string, ask?: Ask): Promise<Reply>;
  /** The answer as it comes, for streams. */
  open(method: string, path: string, ask?: Ask): Promise<IncomingMessage>;
  stop(signal?: NodeJS.Signals): Promise<number | null>;
}

/** `token`: of an earlier service of the same project. Absent: a new one of an admin, since a service prints none into a pipe. */
export async function startService(
  project: Pick<CliProject, "dir" | "stateDir">,
  {
    token,
    args = [],
    socket = null,
    env = {},
  }: { token?: string; args?: readonly string[]; socket?: string | null; env?: Readonly<Record<string, string>> } = {},
): Promise<TestService> {
  const own = token ?? (socket === null ? (await new Tokens(project.stateDir).create("first", ["admin"])).value : "");
  const listen = socket === null ? "127.0.0.1:0" : `unix:${socket}`;
  const child = spawn(process.execPath, [PROGRAM, "serve", "--listen", listen, "--log-level", "debug", ...args], {
    cwd: project.dir,
    env: { ...process.env, NO_COLOR: "1", CORRAL_STATE_DIR: project.stateDir, ...env },
    stdio: ["ignore", "pipe", "pipe"],
  });
  let [out, log] = ["", ""];
  child.stdout.setEncoding("utf8").on("data", (piece: string) => (out += piece));
  child.stderr.setEncoding("utf8").on("data", (piece: string) => (log += piece));
  const exited = once(child, "exit");
  const ready = async (): Promise<void> => {
    while (!log.includes('"serving"')) {
      if (child.exitCode !== null) throw new Error(`the service ended:\n${out}${log}`);
      await Promise.race([once(child.stderr, "data"), exited]);
    }
  };
  await ready();
  const port = Number(/:(\d+)\n/.exec(out)?.[1] ?? 0);
  const seen = new Set<string>();
  let description: Description | null = null;
  const open: TestService["open"] = async (method, path, { token: sent = own, body, raw, headers = {} } = {}) => {
    const content = raw ?? (body === undefined ? undefined : JSON.stringify(body));
    const request = httpRequest({
      ...(socket === null ? { host: "127.0.0.1", port } : { socketPath: socket }),
      method,
      path,
      agent: false,
      headers: {
        ...(socket === null ? {} : { host: "localhost" }),
        ...(sent === null || socket !== null ? {} : { authorization: `Bearer ${sent}` }),
        ...(body === undefined ? {} : { "content-type": "application/json" }),
        ...(content === undefined ? {} : { "content-length": String(Buffer.byteLength(content)) }),
        ...headers,
      },
    });
    const answered = once(request, "response");
    request.end(content);
    const [response] = (await answered) as [IncomingMessage];
    return response;
  };
  const ask: TestService["ask"] = async (method, path, how = {}) => {
    const response = await open(method, path, how);
    const content = await text(response);
    const isJson = (response.headers["content-type"] ?? "").startsWith("application/json");
    const json = isJson ? JSON.parse(content) : undefined;
    const reply = { status: response.statusCode ?? 0, headers: response.headers, text: content, json };
    if (path !== "/openapi.json") {
      description ??= new Description((await ask("GET", "/openapi.json", {})).json);
      const route = description.check(method, path, reply);
      if (route !== null) seen.add(route);
    }
    return reply;
  };
  const service: TestService = {
    child,
    port,
    token: own,
    socket,
    seen,
    log: () => log,
    printed: () => out,
    ask,
    open,
    async stop(signal = "SIGTERM") {
      if (child.exitCode === null && child.signalCode === null) {
        child.kill(signal);
        await exited;
      }
      return child.exitCode;
    },
    async [Symbol.asyncDispose]() {
      await service.stop("SIGTERM");
    },
  };
  return service;
}

/** All routes that a service describes. */
export async function describedRoutes(service: TestService): Promise<string[]> {
  return new Description((await service.ask("GET", "/openapi.json")).json).routes;
}

export interface Sent {
  readonly id: number;
  readonly event: string;
  // biome-ignore lint/suspicious/noExplicitAny: as above.
  readonly data: any;
}

/** The events of a stream until its end, or until there are so many. Each is one that the contract promises. */
export async function eventsFrom(response: IncomingMessage, most = Number.POSITIVE_INFINITY): Promise<Sent[]> {
  const events: Sent[] = [];
  let rest = "";
  for await (const piece of response.setEncoding("utf8")) {
    rest += piece;
    const parts = rest.split("\n\n");
    rest = parts.pop() ?? "";
    for (const part of parts) {
      const [, id, event, data] = /^id: (\d+)\nevent: (\w+)\ndata: (.*)$/.exec(part) ?? [];
      if (data !== undefined) {
        const json = JSON.parse(data);
        if (!isEvent(json)) throw new Error(`no event of the contract: ${data} ${JSON.stringify(isEvent.errors)}`);
        events.push({ id: Number(id), event: event ?? "", data: json });
      }
      if (events.length >= most) return events;
    }
  }
  return events;
}
