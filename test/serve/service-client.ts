import { type ChildProcess, spawn } from "node:child_process";
import { once } from "node:events";
import { request as httpRequest, type IncomingHttpHeaders, type IncomingMessage } from "node:http";
import { text } from "node:stream/consumers";
import { Ajv2020 } from "ajv/dist/2020.js";
import { Tokens } from "../../src/state/service/tokens.ts";
import type { CliProject } from "../cli/cli-project.ts";
import { PROGRAM } from "../cli/program.ts";

export interface Reply {
  readonly status: number;
  readonly headers: IncomingHttpHeaders;
  readonly text: string;
  /** Of a JSON answer. */
  // biome-ignore lint/suspicious/noExplicitAny: a test says by what it expects what the answer is.
  readonly json: any;
}

export interface Ask {
  /** Null: none. Absent: that of an admin. */
  readonly token?: string | null;
  /** Sent as JSON. */
  readonly body?: unknown;
  readonly raw?: string | Buffer;
  readonly headers?: Readonly<Record<string, string | readonly string[]>>;
}

type Json = Readonly<Record<string, unknown>>;

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

/** What `/openapi.json` says, to hold answers against. */
class Description {
  readonly #document: Json;
  readonly #ajv = new Ajv2020({ strict: false, validateFormats: false });

  constructor(document: Json) {
    this.#document = document;
    this.#ajv.addSchema(document, "openapi");
  }

  get routes(): string[] {
    return Object.entries(this.#document.paths as Record<string, Json>).flatMap(([path, methods]) =>
      Object.keys(methods).map((method) => `${method.toUpperCase()} ${path}`),
    );
  }

  /** Throws if the answer is not described. Null for what is no route. */
  check(method: string, path: string, { status, headers, json }: Reply): string | null {
    const asked = path.split("?")[0] ?? "";
    const found = this.routes.find((route) => {
      const pattern = route
        .split(" ")[1]
        ?.replaceAll(".", "\\.")
        .replaceAll(/\{\w+\}/g, "[^/]+");
      return route.startsWith(`${method} `) && new RegExp(`^${pattern}$`).test(asked);
    });
    if (found === undefined) return null;
    const [, pattern = ""] = found.split(" ");
    const key = `${pattern.replaceAll("/", "~1")}/${method.toLowerCase()}/responses/${status}`;
    const operation = (this.#document.paths as Record<string, Record<string, Json>>)[pattern]?.[method.toLowerCase()];
    const responses = (operation?.responses ?? {}) as Record<string, { content?: Record<string, Json> }>;
    const described = responses[String(status)];
    if (described === undefined) throw new Error(`${found} answered ${status}, which is not described`);
    const type = (headers["content-type"] ?? "").split(";")[0] ?? "";
    if (described.content === undefined) return found;
    if (described.content[type] === undefined) throw new Error(`${found} answered ${status} as ${type}`);
    if (type !== "application/json") return found;
    const pointer = encodeURI(`openapi#/paths/${key}/content/application~1json/schema`)
      .replaceAll("%7B", "{")
      .replaceAll("%7D", "}");
    const validate = this.#ajv.getSchema(pointer) ?? this.#ajv.getSchema(encodeURI(pointer));
    if (validate === undefined) throw new Error(`there is no schema at ${pointer}`);
    if (!validate(json)) throw new Error(`${found} ${status}: ${this.#ajv.errorsText(validate.errors)}`);
    return found;
  }
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

/** The events of a stream until its end, or until there are so many. */
export async function eventsFrom(response: IncomingMessage, most = Number.POSITIVE_INFINITY): Promise<Sent[]> {
  const events: Sent[] = [];
  let rest = "";
  for await (const piece of response.setEncoding("utf8")) {
    rest += piece;
    const parts = rest.split("\n\n");
    rest = parts.pop() ?? "";
    for (const part of parts) {
      const [, id, event, data] = /^id: (\d+)\nevent: (\w+)\ndata: (.*)$/.exec(part) ?? [];
      if (data !== undefined) events.push({ id: Number(id), event: event ?? "", data: JSON.parse(data) });
      if (events.length >= most) return events;
    }
  }
  return events;
}
